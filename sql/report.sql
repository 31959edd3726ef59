-- report.sql: what a report masks.
--
-- blackbox_report() writes what was recorded as a page that people send to each
-- other. Keys and passwords must not go with it. The rows of report_masks say
-- what is replaced by [masked: NAME]. What is stored is not changed.
-- docs/report.md is the manual.
--
-- Tables  report_masks  one row for each thing that is masked
-- Views   report__check  contradictions (no rows if all is well)
--
-- This file runs alone after core.sql (sqlite3 my.db < sql/report.sql), any number
-- of times. It restores rows of its own profiles that were deleted, and keeps those
-- that were changed. For other rules, INSERT rows of another profile, and pass its
-- name: '{"redact": ["keys", "mine"]}'.
--
-- profile  'keys' is used unless the caller names another one
-- name     what the reader sees in place of the text
-- kind     'text'   the anchor, with the characters around it
--          'member' the text, number or array that a member of JSON has whose
--                   name is the anchor, in upper or lower case. It is found in
--                   JSON inside a string of JSON, too. An object is not masked:
--                   tools are declared by objects under the same names
-- anchor   a literal text. If it begins with a letter or digit, no letter,
--          digit or underscore may stand before it
--
-- These are for kind 'text' only. A set is written as in [...] of GLOB, without
-- the brackets: 'A-Za-z0-9_-'.
-- before   a set: the characters before the anchor, of which the last 64 count.
--          There must be one, and they are masked, too, unless the anchor stays
-- after    a set: the characters after it, at least as many as "least" says. With
--          a slash, \/ counts as one, because JSON may be written so. NULL:
--          everything up to the text in ends, or to the end of the text
-- holds    a text that must stand among the characters after it
-- ends     a text that must follow them, and that stays
-- keeps    1: the anchor stays
--
-- The time that masking takes grows with the length of the text, and not with
-- what is in it.

CREATE TABLE IF NOT EXISTS main.report_masks(
  profile TEXT NOT NULL
    CHECK (typeof(profile) = 'text' AND length(profile) BETWEEN 1 AND 100
           AND profile <> 'none'),
  name    TEXT NOT NULL
    CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 100
           AND name NOT GLOB '*["\[]*' AND instr(name, ']') = 0
           AND instr(name, char(10)) = 0),
  kind    TEXT NOT NULL DEFAULT 'text' CHECK (kind IN ('text', 'member')),
  anchor  TEXT NOT NULL
    CHECK (typeof(anchor) = 'text' AND length(anchor) BETWEEN 1 AND 200),
  before  TEXT CHECK (length(before) BETWEEN 1 AND 100),
  after   TEXT CHECK (length(after) BETWEEN 1 AND 100),
  least   INTEGER NOT NULL DEFAULT 1
    CHECK (typeof(least) = 'integer' AND least BETWEEN 1 AND 10000),
  holds   TEXT CHECK (length(holds) BETWEEN 1 AND 100),
  ends    TEXT CHECK (length(ends) BETWEEN 1 AND 100),
  keeps   INTEGER NOT NULL DEFAULT 0 CHECK (keeps IN (0, 1)),
  PRIMARY KEY (profile, anchor, kind),
  CHECK (kind = 'text' OR coalesce(before, after, holds, ends) IS NULL),
  CHECK (kind = 'member' OR after IS NOT NULL OR ends IS NOT NULL)
) WITHOUT ROWID;

CREATE VIEW IF NOT EXISTS main.report__check AS
SELECT 'report_masks' AS object,
       'has no rows of the profile keys; run blackbox_install()' AS problem
 WHERE NOT EXISTS (SELECT 1 FROM report_masks WHERE profile = 'keys');

INSERT INTO main.report_masks(profile, name, anchor, before, after, least, holds, ends, keeps)
VALUES
  ('keys', 'Anthropic key', 'sk-ant-', NULL, 'A-Za-z0-9_-', 20, NULL, NULL, 0),
  ('keys', 'OpenAI key', 'sk-', NULL, 'A-Za-z0-9_-', 20, NULL, NULL, 0),
  ('keys', 'Google key', 'AIza', NULL, 'A-Za-z0-9_-', 35, NULL, NULL, 0),
  ('keys', 'Google secret', 'GOCSPX-', NULL, 'A-Za-z0-9_-', 20, NULL, NULL, 0),
  ('keys', 'Google token', 'ya29.', NULL, 'A-Za-z0-9_.-', 20, NULL, NULL, 0),
  ('keys', 'AWS key', 'AKIA', NULL, 'A-Z0-9', 16, NULL, NULL, 0),
  ('keys', 'AWS key', 'ASIA', NULL, 'A-Z0-9', 16, NULL, NULL, 0),
  ('keys', 'AWS secret', 'aws_secret_access_key=', NULL, 'A-Za-z0-9/+', 30, NULL, NULL, 1),
  ('keys', 'AWS secret', 'aws_secret_access_key = ', NULL, 'A-Za-z0-9/+', 30, NULL, NULL, 1),
  ('keys', 'AWS secret', 'AWS_SECRET_ACCESS_KEY=', NULL, 'A-Za-z0-9/+', 30, NULL, NULL, 1),
  ('keys', 'Bedrock key', 'ABSK', NULL, 'A-Za-z0-9+/=', 60, NULL, NULL, 0),
  ('keys', 'GitHub token', 'ghp_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'GitHub token', 'gho_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'GitHub token', 'ghu_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'GitHub token', 'ghs_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'GitHub token', 'ghr_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'GitHub token', 'github_pat_', NULL, 'A-Za-z0-9_', 30, NULL, NULL, 0),
  ('keys', 'GitLab token', 'glpat-', NULL, 'A-Za-z0-9_.-', 20, NULL, NULL, 0),
  ('keys', 'Slack token', 'xoxb-', NULL, 'A-Za-z0-9-', 10, NULL, NULL, 0),
  ('keys', 'Slack token', 'xoxp-', NULL, 'A-Za-z0-9-', 10, NULL, NULL, 0),
  ('keys', 'Slack token', 'xoxa-', NULL, 'A-Za-z0-9-', 10, NULL, NULL, 0),
  ('keys', 'Slack token', 'xoxr-', NULL, 'A-Za-z0-9-', 10, NULL, NULL, 0),
  ('keys', 'Slack token', 'xoxs-', NULL, 'A-Za-z0-9-', 10, NULL, NULL, 0),
  ('keys', 'Slack token', 'xapp-', NULL, 'A-Za-z0-9-', 10, NULL, NULL, 0),
  ('keys', 'Slack webhook', 'hooks.slack.com/services/', NULL, 'A-Za-z0-9/', 20, NULL, NULL, 1),
  ('keys', 'Stripe key', 'sk_live_', NULL, 'A-Za-z0-9', 16, NULL, NULL, 0),
  ('keys', 'Stripe key', 'sk_test_', NULL, 'A-Za-z0-9', 16, NULL, NULL, 0),
  ('keys', 'Stripe key', 'rk_live_', NULL, 'A-Za-z0-9', 16, NULL, NULL, 0),
  ('keys', 'Stripe key', 'rk_test_', NULL, 'A-Za-z0-9', 16, NULL, NULL, 0),
  ('keys', 'Stripe secret', 'whsec_', NULL, 'A-Za-z0-9+/=', 20, NULL, NULL, 0),
  ('keys', 'Hugging Face token', 'hf_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'npm token', 'npm_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'PyPI token', 'pypi-', NULL, 'A-Za-z0-9_-', 50, NULL, NULL, 0),
  ('keys', 'Groq key', 'gsk_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'xAI key', 'xai-', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'Perplexity key', 'pplx-', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'Replicate token', 'r8_', NULL, 'A-Za-z0-9', 30, NULL, NULL, 0),
  ('keys', 'SendGrid key', 'SG.', NULL, 'A-Za-z0-9_.-', 40, '.', NULL, 0),
  ('keys', 'DigitalOcean token', 'dop_v1_', NULL, 'a-f0-9', 40, NULL, NULL, 0),
  ('keys', 'JSON web token', 'eyJ', NULL, 'A-Za-z0-9_.-', 40, '.', NULL, 0),
  ('keys', 'bearer token', 'Bearer ', NULL, 'A-Za-z0-9._~+/=-', 12, NULL, NULL, 1),
  ('keys', 'bearer token', 'bearer ', NULL, 'A-Za-z0-9._~+/=-', 20, NULL, NULL, 1),
  ('keys', 'basic login', 'Authorization: Basic ', NULL, 'A-Za-z0-9+/=', 8, NULL, NULL, 1),
  ('keys', 'login in a URL', '://', NULL, 'A-Za-z0-9._~%!$&*+,;=:-', 3, ':', '@', 1),
  ('keys', 'private key', '-----BEGIN PRIVATE KEY-----', NULL, NULL, 1, NULL, '-----END', 0),
  ('keys', 'private key', '-----BEGIN RSA PRIVATE KEY-----', NULL, NULL, 1, NULL, '-----END', 0),
  ('keys', 'private key', '-----BEGIN EC PRIVATE KEY-----', NULL, NULL, 1, NULL, '-----END', 0),
  ('keys', 'private key', '-----BEGIN DSA PRIVATE KEY-----', NULL, NULL, 1, NULL, '-----END', 0),
  ('keys', 'private key', '-----BEGIN OPENSSH PRIVATE KEY-----', NULL, NULL, 1, NULL, '-----END', 0),
  ('keys', 'private key', '-----BEGIN ENCRYPTED PRIVATE KEY-----', NULL, NULL, 1, NULL, '-----END', 0),
  ('keys', 'private key', '-----BEGIN PGP PRIVATE KEY BLOCK-----', NULL, NULL, 1, NULL, '-----END', 0),
  ('keys', 'secret in the environment', 'API_KEY=', 'A-Z0-9_', '!#-&(-[^-~', 8, NULL, NULL, 1),
  ('keys', 'secret in the environment', 'SECRET=', 'A-Z0-9_', '!#-&(-[^-~', 8, NULL, NULL, 1),
  ('keys', 'secret in the environment', 'TOKEN=', 'A-Z0-9_', '!#-&(-[^-~', 8, NULL, NULL, 1),
  ('keys', 'secret in the environment', 'PASSWORD=', 'A-Z0-9_', '!#-&(-[^-~', 4, NULL, NULL, 1),
  ('email', 'e-mail address', '@', 'A-Za-z0-9._%+-', 'A-Za-z0-9.-', 4, '.', NULL, 0)
ON CONFLICT (profile, anchor, kind) DO NOTHING;

INSERT INTO main.report_masks(profile, name, kind, anchor)
SELECT 'keys', 'member ' || column1, 'member', column1 FROM (VALUES
  ('authorization'), ('proxy-authorization'), ('x-api-key'), ('api-key'),
  ('api_key'), ('apikey'), ('x-goog-api-key'), ('x-auth-token'), ('cookie'),
  ('set-cookie'), ('password'), ('passwd'), ('passphrase'), ('secret'),
  ('client_secret'), ('clientSecret'), ('secret_key'), ('secretKey'),
  ('private_key'), ('privateKey'), ('access_token'), ('accessToken'),
  ('refresh_token'), ('refreshToken'), ('id_token'), ('auth_token'),
  ('authToken'), ('session_token'), ('sessionToken'),
  ('aws_secret_access_key'), ('secretAccessKey'), ('connection_string')) WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;

INSERT INTO main.blackbox_domains(domain, format) VALUES ('report', 1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
