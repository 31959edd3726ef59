-- The same through functions, in the file that rows.sql has made. A call that changes data is a SELECT of its own.

SELECT instr(blackbox_install(), 'payload') > 0;

INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp) VALUES
  ('research', 'r1', 'sum', '42', 1760000005000),
  ('research', 'r2', 'sum', '42', 1760000006000);

SELECT payload_extract('ring', 'research');

SELECT payload_kill_switch('ring', 'billing', 'loop-2');

SELECT event_id, purpose, pinned FROM payload_rows WHERE kill_switch_event_id = 'loop-2';

SELECT payload_unpin(id, 'bob', 'a false alarm') FROM event_payloads WHERE event_id = 'e4';

SELECT rollout_create('6a84c7d1-a5c9-498c-b641-3bfc71a9bf1f', 'be brief', 'permanent', NULL, 1760000010000);

SELECT rollout_append('6a84c7d1-a5c9-498c-b641-3bfc71a9bf1f', '[
  {"type":"event_msg","payload":{"type":"user_message","message":"Is it green now?"}},
  {"type":"event_msg","payload":{"type":"exec_command_begin","command":"make"}},
  {"type":"event_msg","payload":{"type":"agent_message","message":"Yes."}}]', 1760000011000);

SELECT rollout_append('6a84c7d1-a5c9-498c-b641-3bfc71a9bf1f', '{"type":7}');

SELECT rollout_page(1);

SELECT json_extract(rollout_page(1, json_extract(rollout_page(1), '$.nextCursor')), '$.items[0].id');

SELECT rollout_flush();

SELECT cache_write('conv_b4a9f3c5-6d7e-4f9a-8b1c-2d3e4f5a6b7c', 'a7b3c9d2', 'f4e8a1b6',
  '{"orders": [4713]}', 'Orders of another', NULL, 1760000000000);

SELECT cache_write('conv_b4a9f3c5-6d7e-4f9a-8b1c-2d3e4f5a6b7c', 'a7b3c9d2', 'f4e8a1b7',
  '{"parcels": [1043, 1044]}', 'Parcels of another', NULL, 1760000000000);

SELECT json_extract(cache_read('conv_b4a9f3c5-6d7e-4f9a-8b1c-2d3e4f5a6b7c_a7b3c9d2_f4e8a1b6'), '$.data.orders[0]');

SELECT evidence_export('rec', 0, 1760000000000);

SELECT evidence_clear('rec');

SELECT agent_id, given, rolled, rows, cleared, saved FROM ring_agents ORDER BY agent_id;

SELECT object, problem FROM blackbox_check;

UPDATE blackbox_settings SET value = iif(name = 'payload.enabled', 1, 'memory')
 WHERE name IN ('payload.enabled', 'payload.queue_mode');

SELECT payload_queue('w1', 'support', 'asked at the end', 'answered');

SELECT payload_queue('w2', 'support', 'asked at the end', 'answered');

SELECT rows > 0 FROM payload_waiting;
