-- rollout_check.sql: the query that lists the contradictions in conversations; no rows
-- if all is well. (What needs the payloads is checked in C.) blackbox_check() runs it: "main." stands for the schema.
SELECT h.id AS object,
       'last_sequence is ' || h.last_sequence || ', the items reach ' || n.last AS problem
  FROM main.rollout__heads AS h
  JOIN (SELECT s.rollout AS no, coalesce(max(d.id & 4294967295), -1) AS last,
               count(d.id) AS items
          FROM main.rollout__segments AS s LEFT JOIN main.rollout__data AS d
            ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last
         GROUP BY s.rollout) AS n ON n.no = h.no
 WHERE h.last_sequence <> n.last OR h.last_sequence + 1 <> n.items
UNION ALL
SELECT h.id, 'it has no session_meta; DELETE it, or append one'
  FROM main.rollout__heads AS h
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__data AS d WHERE d.id = h.no << 32)
UNION ALL
SELECT h.id, 'its row in rollout__about is missing; rollout_rebuild() derives it'
  FROM main.rollout__heads AS h
 WHERE h.last_sequence >= 0 AND h.behind IS NULL
   AND NOT EXISTS (SELECT 1 FROM main.rollout__about AS a WHERE a.no = h.no)
UNION ALL
SELECT h.id, 'the sums of its calls are not those of rollout_calls; rollout_rebuild() makes them anew'
  FROM main.rollout__heads AS h
 WHERE (SELECT count(*), total(input_fresh), total(cache_write), total(cache_read), total(output), total(reasoning)
          FROM main.rollout_calls WHERE id BETWEEN h.no << 32 AND (h.no << 32) + 4294967295)
    <> (SELECT total(calls), total(input_fresh), total(cache_write), total(cache_read), total(output), total(reasoning)
          FROM main.rollout__sums WHERE no = h.no)
UNION ALL
SELECT 'rollout__about', 'row ' || a.no || ' belongs to no conversation'
  FROM main.rollout__about AS a
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__heads AS h WHERE h.no = a.no)
UNION ALL
SELECT 'history ' || (d.id >> 32),
       'item ' || (d.id & 4294967295) || ' belongs to no conversation'
  FROM main.rollout__data AS d
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__segments AS s
                    WHERE s.owner = d.id >> 32
                      AND d.id & 4294967295 BETWEEN s.first AND s.last)
UNION ALL
SELECT 'rollout__packed', 'text ' || p.text || ' is that of no item' FROM main.rollout__packed AS p
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__data AS d WHERE d.id = p.id AND typeof(d.payload) = 'blob' AND substr(d.payload, 13) + 0 = p.text)
UNION ALL
SELECT 'rollout__segments', 'conversation ' || s.rollout || ' has no head'
  FROM main.rollout__segments AS s
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout__heads AS h WHERE h.no = s.rollout)
UNION ALL
SELECT 'rollout_policy', 'the preset in force has no row: everything is kept'
 WHERE NOT EXISTS (SELECT 1 FROM main.rollout_policy
                    WHERE preset = (SELECT value FROM main.blackbox_settings
                                     WHERE name = 'rollout.policy'))
