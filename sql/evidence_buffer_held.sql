-- evidence_buffer_held.sql: the guards of an evidence buffer in a file that has
-- holds.
--
-- It continues the template evidence_buffer.sql. The module makes these triggers
-- with the first hold in the file, and drops them with the last. They look at
-- retention__holds, a view of core. Rows can be added while a hold keeps the
-- buffer. Nothing is pruned, so that a full buffer takes no more rows.

CREATE VIEW main.@_held AS
SELECT 1 AS held
  FROM retention__holds
 WHERE kind = 'buffer' AND "key" = lower('@');

CREATE TRIGGER main.@_heldrow
BEFORE DELETE ON @_rows
WHEN EXISTS (SELECT 1 FROM @_held)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this buffer, from which nothing can be deleted or pruned; increase max_size_bytes, or end the hold with retention_release()');
END;

CREATE TRIGGER main.@_heldsize
BEFORE UPDATE ON @_rows
WHEN (NEW.timestamp, NEW.action_bytes, NEW.screenshot_bytes, NEW.pruned)
     IS NOT (OLD.timestamp, OLD.action_bytes, OLD.screenshot_bytes, OLD.pruned)
 AND EXISTS (SELECT 1 FROM @_held)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this buffer, in which nothing can be changed or pruned; increase max_size_bytes, or end the hold with retention_release()');
END;

CREATE TRIGGER main.@_heldaction
BEFORE UPDATE ON @_actions
WHEN EXISTS (SELECT 1 FROM @_held)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this buffer, in which nothing can be changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

CREATE TRIGGER main.@_heldshot
BEFORE UPDATE ON @_shots
WHEN EXISTS (SELECT 1 FROM @_held)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this buffer, in which nothing can be changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;
