-- store_check.sql: the query that lists the contradictions in the body store; no rows if
-- all is well. blackbox_check() runs it: "main." stands for the schema.
SELECT 'store__state' AS object, 'has not the one row that it must have' AS problem
 WHERE (SELECT count(*) FROM main.store__state) <> 1
UNION ALL
SELECT 'store__state', 'its totals are not those of the texts, packs and lists'
  FROM main.store__state AS s,
       (SELECT count(*) AS n, coalesce(sum(bytes), 0) AS b,
               coalesce(sum(length(recipe)), 0) AS k FROM main.store__texts) AS t,
       (SELECT coalesce(sum(length(data)), 0) AS k FROM main.store__packs) AS p,
       (SELECT count(*) AS n FROM main.store__pieces) AS x
 WHERE (s.texts, s.text_bytes, s.kept_bytes) IS NOT (t.n, t.b, t.k + p.k)
    OR s.pieces < x.n
UNION ALL
SELECT 'store__packs', iif(pack > 0, 'pack ' || pack || ' has no list of its pieces', 'the list of pack ' || -pack || ' has no pack')
  FROM main.store__packs WHERE -pack NOT IN (SELECT pack FROM main.store__packs)
