-- rollout_check.sql: the query that lists the contradictions in conversations; no rows
-- if all is well. blackbox_check() runs it: "main." stands for the schema.
SELECT h.id AS object,
       'last_sequence is ' || h.last_sequence || ', the items reach '
         || d.last_sequence AS problem
  FROM main.rollout__heads AS h JOIN main.rollout__derived AS d ON d.no = h.no
 WHERE h.last_sequence <> d.last_sequence OR h.last_sequence + 1 <> d.items
UNION ALL
SELECT h.id, 'bytes is ' || h.bytes || ', its own items have ' || d.bytes
  FROM main.rollout__heads AS h JOIN main.rollout__derived AS d ON d.no = h.no
 WHERE h.bytes <> d.bytes
UNION ALL
SELECT h.id, 'updated is ' || h.updated || ', its newest own item is of '
         || d.updated
  FROM main.rollout__heads AS h JOIN main.rollout__derived AS d ON d.no = h.no
 WHERE h.updated <> d.updated
UNION ALL
SELECT h.id, 'user_sequence is ' || coalesce(h.user_sequence, 'NULL')
         || ', the first user event is item '
         || coalesce(d.user_sequence, 'NULL')
  FROM main.rollout__heads AS h JOIN main.rollout__derived AS d ON d.no = h.no
 WHERE h.user_sequence IS NOT d.user_sequence
UNION ALL
SELECT h.id, 'turns is ' || h.turns || ', the items have ' || d.turns
  FROM main.rollout__heads AS h JOIN main.rollout__derived AS d ON d.no = h.no
 WHERE h.turns <> d.turns
UNION ALL
SELECT h.id, 'it has no session_meta; DELETE it, or append one'
  FROM main.rollout__heads AS h
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__data AS d WHERE d.id = h.no << 32)
UNION ALL
SELECT h.id, 'its row in rollout__about is missing; rollout_rebuild() derives it'
  FROM main.rollout__heads AS h
 WHERE h.last_sequence >= 0
   AND NOT EXISTS (SELECT 1 FROM main.rollout__about AS a WHERE a.no = h.no)
UNION ALL
SELECT h.id, 'source and the like are not those of its session_meta; rollout_rebuild() derives them'
  FROM main.rollout__heads AS h
  JOIN main.rollout__about AS a ON a.no = h.no
  JOIN main.rollout__meta AS m ON m.no = h.no
 WHERE (a.source, a.originator, a.cli_version, a.model_provider, a.forked_from,
        a.format, a.source_id, a.parent, a.agent) IS NOT
       (m.source, m.originator, m.cli_version, m.model_provider, m.forked_from,
        m.format, m.source_id, m.parent, m.agent)
UNION ALL
SELECT h.id, 'its ' || n.fact
         || ' is not the newest that its items say; rollout_rebuild() derives it'
  FROM main.rollout__heads AS h
  JOIN main.rollout__about AS a ON a.no = h.no
  LEFT JOIN main.rollout__meta AS m ON m.no = h.no
  JOIN (SELECT h.no AS no, f.fact AS fact,
               (SELECT x.value FROM main.rollout_facts AS x
                 WHERE x.id BETWEEN h.no << 32 AND (h.no << 32) + 4294967295
                   AND x.fact = f.fact AND x.value <> ''
                 ORDER BY x.id DESC LIMIT 1) AS value
          FROM main.rollout__heads AS h
         CROSS JOIN (SELECT 'title' AS fact UNION ALL SELECT 'cwd'
                     UNION ALL SELECT 'model' UNION ALL SELECT 'branch') AS f) AS n
    ON n.no = h.no
 WHERE CASE n.fact
         WHEN 'title' THEN a.title IS NOT coalesce(a.given_title, n.value, a.title)
         WHEN 'cwd' THEN a.cwd IS NOT coalesce(n.value,
                           CASE WHEN m.forked_from IS NULL THEN m.cwd
                                ELSE a.cwd END)
         WHEN 'model' THEN a.model IS NOT coalesce(n.value, a.model)
         ELSE a.branch IS NOT coalesce(n.value, a.branch) END
UNION ALL
SELECT h.id, 'first_user_message is not that of its first turn; rollout_rebuild() derives it'
  FROM main.rollout__heads AS h
  JOIN main.rollout__about AS a ON a.no = h.no
  JOIN main.rollout__derived AS d ON d.no = h.no
 WHERE a.prompt_id IS NOT d.prompt_id
    OR a.first_user_message IS NOT
       (SELECT substr(value, 1, 200) FROM main.rollout_facts
         WHERE id = d.prompt_id AND fact IN ('user', 'goal'))
UNION ALL
SELECT coalesce(h.id, 'history ' || (x.id >> 32)),
       'item ' || (x.id & 4294967295)
         || ': its usage is missing or wrong; rollout_rebuild() derives it'
  FROM main.rollout__spending AS x
  LEFT JOIN main.rollout__heads AS h ON h.no = x.id >> 32
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout_calls AS c
                    WHERE c.call = x.call AND c.output >= x.output
                      AND (c.id <> x.id OR
                           (c.input_fresh, c.cache_write, c.cache_write_1h, c.cache_read)
                           = (x.input_fresh, x.cache_write, x.cache_write_1h, x.cache_read)))
UNION ALL
SELECT 'rollout__about', 'row ' || a.no || ' belongs to no conversation'
  FROM main.rollout__about AS a
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__heads AS h WHERE h.no = a.no)
UNION ALL
SELECT coalesce(h.id, 'history ' || (d.id >> 32)),
       'item ' || (d.id & 4294967295) || ': the payload is not JSON'
  FROM main.rollout__data AS d
  LEFT JOIN main.rollout__heads AS h ON h.no = d.id >> 32
 WHERE d.payload IS NOT NULL
   AND NOT (json_valid(d.payload) OR json_valid(d.payload || ' '))
UNION ALL
SELECT 'history ' || (d.id >> 32),
       'item ' || (d.id & 4294967295) || ' belongs to no conversation'
  FROM main.rollout__data AS d
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__segments AS s
                    WHERE s.owner = d.id >> 32
                      AND d.id & 4294967295 BETWEEN s.first AND s.last)
UNION ALL
SELECT 'rollout__segments', 'conversation ' || s.rollout || ' has no head'
  FROM main.rollout__segments AS s
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__heads AS h WHERE h.no = s.rollout)
UNION ALL
SELECT 'rollout_policy', 'the preset in force has no row: everything is dropped'
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__rules)
