-- evidence_check.sql: the query that lists the contradictions in the overflow and in
-- pinned evidence; no rows if all is well. blackbox_check() runs it: "main." stands for
-- the schema.
SELECT o.owner AS object, 'the counters differ from the rows' AS problem
  FROM main.evidence_owners AS o
 WHERE (o.rows, o.bytes) <>
       (SELECT count(*),
               coalesce(sum(e.action_bytes + e.screenshot_bytes + 100), 0)
          FROM main.evidence__overflow AS e WHERE e.owner = o.owner)
UNION ALL
SELECT e.owner || '/' || e.id,
       CASE WHEN o.owner IS NULL THEN 'has no owner'
            WHEN e.action IS NULL THEN 'has no action'
            WHEN e.action_bytes <> length(CAST(e.action AS BLOB))
              THEN 'its size differs from the size of its action'
            ELSE 'its size differs from the size of its screenshot' END
  FROM main.evidence__overflow AS e
  LEFT JOIN main.evidence_owners AS o ON o.owner = e.owner
 WHERE o.owner IS NULL OR e.action IS NULL
    OR e.action_bytes <> length(CAST(e.action AS BLOB))
    OR e.screenshot_bytes <> coalesce(length(e.screenshot), 0)
UNION ALL
SELECT e.buffer || '/' || e.id, 'is pinned in a buffer that is not there'
  FROM main.evidence__pinned AS e
 WHERE NOT EXISTS (SELECT 1 FROM main.sqlite_schema
                    WHERE type = 'table' AND name = e.buffer COLLATE NOCASE)
