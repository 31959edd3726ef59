-- What every host does, each change as a row. A statement ends with an empty line. One that begins with SELECT is a
-- query, whose rows are printed. Of one that fails, the message is printed. A question mark stands for a value that
-- the host binds: 'bound', a text beyond ASCII, the blob X'00FF', NULL, 1760000000000.

INSERT INTO blackbox_call(command, arguments) VALUES('blackbox_install', '["main", "all"]');

CREATE VIRTUAL TABLE ring USING payload_ring(window=3);

INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp) VALUES
  ('support', 'e1', 'where is my parcel?', 'get_order(1042)', 1760000000000),
  ('support', 'e2', 'timeout', 'get_order(1042)', 1760000001000),
  ('support', 'e3', 'timeout', 'get_order(1042)', 1760000002000),
  ('billing', 'e4', 'send me the invoice', 'sent', 1760000003000),
  ('support', 'e5', 'timeout', 'get_order(1042)', 1760000004000);

SELECT seq, event_id, request_body, size_bytes, timestamp FROM ring WHERE agent_id = 'support' ORDER BY seq;

SELECT agent_id, given, rolled, rows, bytes FROM ring_agents ORDER BY agent_id;

INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp) VALUES(?, ?, ?, ?, ?);

SELECT event_id, typeof(request_body), hex(request_body), response_body, typeof(timestamp), timestamp
  FROM ring WHERE agent_id = 'bound';

INSERT INTO ring(agent_id, event_id, timestamp) VALUES('support', 'e6', 'yesterday');

INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'support', 'loop-1');

INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'support', 'loop-1');

SELECT event_id, purpose, pinned, size_bytes, created_ms FROM payload_rows
 WHERE kill_switch_event_id = 'loop-1' ORDER BY created_ms;

DELETE FROM event_payloads WHERE event_id = 'e5';

INSERT INTO payload_unpins(payload_id, actor, reason)
  SELECT id, 'alice', 'case 7 is closed' FROM event_payloads WHERE event_id = 'e5';

DELETE FROM event_payloads WHERE event_id = 'e5';

SELECT count(*), min(pinned) FROM event_payloads;

INSERT INTO rollouts(id, session_meta, created, expires_at) VALUES('5973b6c0-94b8-487b-a530-2aeb6098ae0e',
  '{"id":"5973b6c0-94b8-487b-a530-2aeb6098ae0e","timestamp":"2025-10-09T08:53:20.000Z"}',
  1760000000000, 'permanent');

INSERT INTO rollout_log(rollout_id, type, payload, timestamp) VALUES
  ('5973b6c0-94b8-487b-a530-2aeb6098ae0e', 'event_msg',
   '{"type":"user_message","message":"Why is the build red?"}', 1760000001000),
  ('5973b6c0-94b8-487b-a530-2aeb6098ae0e', 'event_msg',
   '{"type":"exec_command_begin","command":"make"}', 1760000002000),
  ('5973b6c0-94b8-487b-a530-2aeb6098ae0e', 'event_msg',
   '{"type":"agent_message","message":"A test fails since Monday."}', 1760000003000);

INSERT INTO rollout_log(rollout_id, type, payload) VALUES('00000000-94b8-487b-a530-2aeb6098ae0e', 'event_msg', '{}');

SELECT sequence, timestamp, type, payload FROM rollout_items
 WHERE rollout = '5973b6c0-94b8-487b-a530-2aeb6098ae0e' ORDER BY sequence;

SELECT id, updated, item_count, status, first_user_message, cursor FROM rollout_list(10);

INSERT INTO blackbox_settings(name, value) VALUES('cache.session_quota_bytes', 40);

INSERT INTO cache_items(session_id, task_id, turn_id, timestamp, description, data)
  VALUES('conv_a3f8e2b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b', 'a7b3c9d2', 'f4e8a1b6', 1760000000000,
         'Orders of the customer', '{"orders": [4711, 4712]}');

INSERT INTO cache_items(session_id, task_id, turn_id, timestamp, description, data)
  VALUES('conv_a3f8e2b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b', 'a7b3c9d2', 'f4e8a1b7', 1760000000000,
         'Parcels of the customer', '{"parcels": [1042]}');

SELECT session_id, total_size, item_count FROM cache_sessions;

CREATE VIRTUAL TABLE rec USING evidence_buffer;

INSERT INTO rec(action, screenshot) VALUES
  ('{"id":"a1","timestamp":1700000000000,"eventType":"navigate","value":"https://example.com/"}', NULL),
  ('{"id":"a2","timestamp":1700000001000,"eventType":"click","networkData":{"recentRequests":["..."]},"fallbackChain":'
   || '{"strategies":[{"type":"dom_selector","confidence":0.85,"selector":"#save"}]}}', zeroblob(500000));

INSERT INTO blackbox_call(command, arguments) VALUES('evidence_prune_for_approval', '["rec"]');

SELECT rule, rows, screenshots, bytes FROM rec_log;

SELECT evidence_export_replay('rec');

SELECT domain, rule, rows, bytes FROM retention_log ORDER BY domain, rule;

SELECT object, problem FROM blackbox_check;
