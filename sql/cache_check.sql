-- cache_check.sql: the query that lists the contradictions in the cache; no rows if all
-- is well. blackbox_check() runs it: "main." stands for the schema.
SELECT s.session_id AS object,
       'the totals differ from the items of the session; delete the session' AS problem
  FROM main.cache_sessions AS s
 WHERE (s.total_size, s.item_count) IS NOT
       (SELECT coalesce(sum(data_size), 0), count(*) FROM main.cache_items AS i
         WHERE i.session_id = s.session_id)
UNION ALL
SELECT i.storage_key, 'the item has no session; delete it and write it again'
  FROM main.cache_items AS i
 WHERE NOT EXISTS (SELECT 1 FROM main.cache_sessions AS s WHERE s.session_id = i.session_id)
UNION ALL
SELECT 'cache_state', 'it differs from the sessions or the settings; run blackbox_install()'
 WHERE NOT EXISTS (
   SELECT 1 FROM main.cache_state AS t, main.cache__limits AS l
    WHERE t.rule IS NULL
      AND t.bytes = (SELECT coalesce(sum(total_size), 0) FROM main.cache_sessions)
      AND (l.max_item, l.max_description, l.session_quota, l.total_quota, l.evict, l.strict_ids)
          IS (
          SELECT max(iif(name = 'cache.max_item_bytes', value, NULL)),
                 max(iif(name = 'cache.max_description', value, NULL)),
                 max(iif(name = 'cache.session_quota_bytes', value, NULL)),
                 max(iif(name = 'cache.total_quota_bytes', value, NULL)),
                 max(iif(name = 'cache.on_quota', value = 'evict_oldest', NULL)),
                 max(iif(name = 'cache.strict_session_ids', value, NULL))
            FROM main.blackbox_settings))
UNION ALL
SELECT storage_key, 'it is a tool result, and not protected; write custom_metadata again with json()'
  FROM main.cache_items
 WHERE NOT protected AND (json_valid(custom_metadata) OR json_valid(custom_metadata || ' '))
   AND custom_metadata ->> '$.kind' IS 'tool_result'
UNION ALL
SELECT storage_key, 'CorruptedDataError: data or custom_metadata is not JSON; delete the item'
  FROM main.cache_items
 WHERE data IS NULL OR NOT (json_valid(data) OR json_valid(data || ' '))
    OR custom_metadata IS NOT NULL
   AND NOT (json_valid(custom_metadata) OR json_valid(custom_metadata || ' '));
