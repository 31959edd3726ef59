-- report.sql: what is a secret.
--
-- People send the pages of blackbox_report() to each other. Keys and passwords must not go with
-- them. The rows of blackbox_secrets say what is replaced by [masked: NAME] in a report, and, with
-- the setting payload.secrets, when it is written. docs/report.md is the manual.
--
-- Tables  blackbox_secrets  one row for each rule
-- Views   report__check  contradictions (no rows if all is well)
--
-- This file runs alone after core.sql (sqlite3 my.db < sql/report.sql), any number of times. It
-- restores rows of its own profiles that were deleted, and keeps those that were changed: UPDATE
-- blackbox_secrets SET enabled = 0 WHERE name = ... turns one off. New rows of the profile 'keys' are
-- used everywhere. Those of another one are used by reports that name it: '{"redact": ["keys", "mine"]}'.
--
-- name     what the reader sees in place of the text
-- kind     'prefix'  the anchor, with the characters around it
--          'name'    the value that a name is given which ends with the anchor, in upper
--                    or lower case: of a member of JSON a text, number or array, in
--                    quotes or not, after a sign such as = or : and after an option. It
--                    is found in JSON inside a string of JSON, too. In the anchor, _ is
--                    any of _ - . and a blank, or nothing, but for its first 3 characters
--          'entropy' the same, if the value looks random: see bits
--          'never'   the value of such a name is none
-- anchor   a literal text, or several with | between them. If it begins with a letter or digit, no letter,
--          digit or underscore may stand before it
-- least    a value has so many characters
-- holds    a text that must stand among them
-- bits     Shannon's entropy of a character is at least that; and of a name, the value has
--          letters, digits and no blank
-- after    a set, written as in [...] of GLOB, without the brackets: 'A-Za-z0-9_-'. The
--          characters after the anchor; of a name, those of a value without quotes. With
--          a slash, \/ counts as one, because JSON may be written so. NULL of a prefix:
--          everything up to the text in ends, or to the end of the string
--
-- These are for kind 'prefix' only.
-- before   a set: the characters before the anchor, of which the last 64 count.
--          There must be one, and they are masked, too, unless the anchor stays
-- ends     a text that must follow them, and that stays
-- keeps    1: the anchor stays
-- line     words with | between them, one of which must stand before the anchor, or in it: in the
--          line, at most 200 characters away. A value of such a rule may be in quotes, too

CREATE TABLE IF NOT EXISTS main.blackbox_secrets(
  profile TEXT NOT NULL
    CHECK (typeof(profile) = 'text' AND length(profile) BETWEEN 1 AND 100
           AND profile <> 'none'),
  name    TEXT NOT NULL
    CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 100
           AND name NOT GLOB '*["\[]*' AND instr(name, ']') = 0
           AND instr(name, char(10)) = 0),
  kind    TEXT NOT NULL DEFAULT 'prefix' CHECK (kind IN ('prefix', 'name', 'entropy', 'never')),
  anchor  TEXT NOT NULL
    CHECK (typeof(anchor) = 'text' AND length(anchor) BETWEEN 1 AND 500
           AND instr('|' || anchor || '|', '||') = 0),
  before  TEXT CHECK (length(before) BETWEEN 1 AND 100),
  after   TEXT CHECK (length(after) BETWEEN 1 AND 100),
  least   INTEGER NOT NULL DEFAULT 1
    CHECK (typeof(least) = 'integer' AND least BETWEEN 1 AND 10000),
  holds   TEXT CHECK (length(holds) BETWEEN 1 AND 100),
  ends    TEXT CHECK (length(ends) BETWEEN 1 AND 100),
  keeps   INTEGER NOT NULL DEFAULT 0 CHECK (keeps IN (0, 1)),
  bits    REAL CHECK (bits BETWEEN 0 AND 8),
  line    TEXT CHECK (length(line) BETWEEN 1 AND 200),
  enabled INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
  PRIMARY KEY (profile, anchor, kind),
  CHECK (kind = 'prefix' OR coalesce(before, ends, line) IS NULL),
  CHECK (kind <> 'prefix' OR after IS NOT NULL OR ends IS NOT NULL),
  CHECK (kind <> 'entropy' OR bits IS NOT NULL)
) WITHOUT ROWID;

CREATE VIEW IF NOT EXISTS main.report__check AS
SELECT 'blackbox_secrets' AS object,
       'has no rows of the profile keys; run blackbox_install()' AS problem
 WHERE NOT EXISTS (SELECT 1 FROM blackbox_secrets WHERE profile = 'keys');

INSERT INTO main.blackbox_secrets(profile, name, anchor, after, least, holds)
SELECT 'keys', column1, replace(column2, ' ', '|'), column3, column4, column5 FROM (VALUES
  ('Anthropic key', 'sk-ant-', 'A-Za-z0-9_-', 20, NULL), ('OpenAI key', 'sk-', 'A-Za-z0-9_-', 20, NULL),
  ('Google key', 'AIza', 'A-Za-z0-9_-', 35, NULL), ('Google secret', 'GOCSPX-', 'A-Za-z0-9_-', 20, NULL),
  ('Google token', 'ya29.', 'A-Za-z0-9_.-', 20, NULL), ('AWS key', 'AKIA ASIA ABIA ACCA', 'A-Z0-9', 16, NULL),
  ('Bedrock key', 'ABSK', 'A-Za-z0-9+/=', 60, NULL), ('GitHub token', 'ghp_ gho_ ghu_ ghs_ ghr_', 'A-Za-z0-9', 30, NULL),
  ('GitHub token', 'github_pat_', 'A-Za-z0-9_', 30, NULL), ('GitLab token', 'glpat- gldt- glrt- glcbt- glptt- glagent-', 'A-Za-z0-9_.-', 20, NULL),
  ('Slack token', 'xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxe.xoxp- xapp-', 'A-Za-z0-9.-', 10, NULL),
  ('Stripe key', 'sk_live_ sk_test_ rk_live_ rk_test_', 'A-Za-z0-9', 16, NULL),
  ('Stripe secret', 'whsec_', 'A-Za-z0-9+/=', 20, NULL), ('Hugging Face token', 'hf_ api_org_', 'A-Za-z0-9', 30, NULL), ('npm token', 'npm_', 'A-Za-z0-9', 30, NULL),
  ('PyPI token', 'pypi-', 'A-Za-z0-9_-', 50, NULL), ('Groq key', 'gsk_', 'A-Za-z0-9', 30, NULL),
  ('xAI key', 'xai-', 'A-Za-z0-9', 30, NULL), ('Perplexity key', 'pplx-', 'A-Za-z0-9', 30, NULL),
  ('Replicate token', 'r8_', 'A-Za-z0-9', 30, NULL), ('SendGrid key', 'SG.', 'A-Za-z0-9_.-', 40, '.'),
  ('DigitalOcean token', 'dop_v1_ doo_v1_ dor_v1_', 'a-f0-9', 40, NULL),
  ('JSON web token', 'eyJ', 'A-Za-z0-9_.-', 40, '.'), ('Vault token', 'hvs. hvb.', 'A-Za-z0-9_-', 24, NULL),
  ('Shopify token', 'shpat_ shpca_ shppa_ shpss_', 'a-fA-F0-9', 32, NULL), ('Linear key', 'lin_api_ lin_oauth_', 'A-Za-z0-9', 30, NULL),
  ('Notion token', 'secret_ ntn_', 'A-Za-z0-9', 40, NULL), ('Databricks token', 'dapi', 'a-f0-9-', 32, NULL),
  ('Doppler token', 'dp.pt. dp.st. dp.ct.', 'A-Za-z0-9._-', 30, NULL), ('Postman key', 'PMAK-', 'a-f0-9-', 40, NULL),
  ('New Relic key', 'NRAK- NRJS- NRAL-', 'A-Z0-9a-z', 19, NULL),
  ('Grafana token', 'glsa_ glc_', 'A-Za-z0-9_+/=', 30, NULL), ('Figma token', 'figd_', 'A-Za-z0-9_-', 30, NULL),
  ('Airtable token', 'pat', 'A-Za-z0-9.', 60, '.'), ('Atlassian token', 'ATATT3 ATBB ATCTT3', 'A-Za-z0-9_=-', 24, NULL),
  ('Sentry token', 'sntrys_ sntryu_', 'A-Za-z0-9+/=_', 30, NULL),
  ('Docker token', 'dckr_pat_ dckr_oat_', 'A-Za-z0-9_-', 20, NULL), ('Pulumi token', 'pul-', 'a-f0-9', 40, NULL),
  ('PlanetScale token', 'pscale_tkn_ pscale_pw_ pscale_oauth_', 'A-Za-z0-9_.-', 30, NULL),
  ('Supabase token', 'sbp_ sb_secret_', 'A-Za-z0-9_', 20, NULL), ('Tailscale key', 'tskey-', 'A-Za-z0-9-', 20, NULL),
  ('Heroku key', 'HRKU-', 'A-Za-z0-9_-', 30, NULL), ('RubyGems key', 'rubygems_', 'a-f0-9', 40, NULL),
  ('Square token', 'sq0atp- sq0csp- EAAA', 'A-Za-z0-9_-', 22, NULL), ('Twilio key', 'SK0 SK1 SK2 SK3 SK4 SK5 SK6 SK7 SK8 SK9 SKa SKb SKc SKd SKe SKf', 'a-f0-9', 31, NULL),
  ('Telegram token', 'bot', '0-9A-Za-z_:-', 40, ':'), ('Mailgun key', 'key-', 'a-f0-9', 32, NULL),
  ('OpenRouter key', 'sk-or-', 'A-Za-z0-9-', 40, NULL), ('Tavily key', 'tvly-', 'A-Za-z0-9-', 20, NULL),
  ('LangSmith key', 'lsv2_pt_ lsv2_sk_', 'a-f0-9_', 32, NULL), ('Fly token', 'FlyV1 fm2_', 'A-Za-z0-9+/=_ ,', 40, NULL), ('age key', 'AGE-SECRET-KEY-1', 'A-Z0-9', 50, NULL),
  ('Cloudflare token', 'v1.0-', 'a-f0-9-', 80, NULL), ('Firecrawl key', 'fc- e2b_ fw_ pa- nfp_ r2_', 'A-Za-z0-9_-', 30, NULL),
  ('Alibaba key', 'LTAI', 'A-Za-z0-9', 17, NULL), ('Adobe secret', 'p8e-', 'a-zA-Z0-9', 32, NULL),
  ('Clojars token', 'CLOJARS_', 'a-z0-9', 50, NULL), ('Duffel token', 'duffel_test_ duffel_live_', 'A-Za-z0-9_=-', 40, NULL),
  ('Dynatrace token', 'dt0c01. dt0s16.', 'A-Z0-9.', 60, '.'), ('EasyPost key', 'EZAK EZTK', 'A-Za-z0-9', 54, NULL),
  ('Flutterwave key', 'FLWSECK- FLWSECK_TEST-', 'A-Za-z0-9-', 12, NULL), ('Frame.io token', 'fio-u-', 'A-Za-z0-9_=-', 60, NULL),
  ('Prefect key', 'pnu_ pnb_', 'a-zA-Z0-9', 36, NULL), ('Brevo key', 'xkeysib- xsmtpsib-', 'A-Za-z0-9-', 60, NULL),
  ('1Password token', 'ops_eyJ', 'A-Za-z0-9+/=', 100, NULL), ('Artifactory token', 'AKCp cmVmdGtuO', 'A-Za-z0-9', 50, NULL),
  ('Buildkite token', 'bkua_', 'a-f0-9', 40, NULL), ('Contentful token', 'CFPAT-', 'A-Za-z0-9_-', 40, NULL),
  ('Docker Swarm token', 'SWMTKN-1-', 'a-z0-9-', 60, NULL), ('Infracost key', 'ico-', 'A-Za-z0-9', 32, NULL),
  ('PostHog key', 'phx_', 'A-Za-z0-9', 40, NULL), ('ReadMe key', 'rdme_', 'a-z0-9', 60, NULL),
  ('Shippo token', 'shippo_live_ shippo_test_', 'a-f0-9', 40, NULL), ('Sourcegraph token', 'sgp_', 'a-f0-9_', 40, NULL),
  ('Yandex key', 'AQVN', 'A-Za-z0-9_-', 35, NULL), ('Yandex token', 't1.', 'A-Za-z0-9_.=-', 80, '.'), ('Lob key', 'live_ test_', 'a-f0-9', 35, NULL),
  ('Typeform token', 'tfp_', 'A-Za-z0-9_.-', 40, NULL), ('Settlemint token', 'sm_pat_ sm_sat_ sm_aat_', 'A-Za-z0-9', 16, NULL),
  ('password hash', '$1$ $5$ $6$ $y$ $apr1$ $2a$ $2b$ $2y$ $argon2id$ $argon2i$', 'A-Za-z0-9./$=,+', 26, '$'),
  ('Facebook token', 'EAACEdEose0cBA', 'A-Za-z0-9', 20, NULL), ('Dropbox token', 'sl.', 'A-Za-z0-9_-', 80, NULL)) AS t WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;

INSERT INTO main.blackbox_secrets(profile, name, anchor, before, after, least, holds, ends, keeps)
VALUES
  ('keys', 'signature', 'Signature=', NULL, 'A-Za-z0-9%+/=_-', 27, NULL, NULL, 1),
  ('keys', 'password of a machine', ' password ', NULL, 'A-Za-z0-9._~%!$&*+;=:@#-', 6, NULL, NULL, 1),
  ('keys', 'password of a machine', ':5432:', NULL, 'A-Za-z0-9._~%!$&*+;=:@#-', 5, ':', NULL, 1),
  ('keys', 'Discord webhook', '/api/webhooks/', NULL, 'A-Za-z0-9/_-', 60, NULL, NULL, 1),
  ('keys', 'Slack webhook', 'hooks.slack.com/services/', NULL, 'A-Za-z0-9/', 20, NULL, NULL, 1),
  ('keys', 'Teams webhook', 'webhook.office.com/webhookb2/', NULL, 'A-Za-z0-9/@-', 60, NULL, NULL, 1),
  ('keys', 'bearer token', 'Bearer ', NULL, 'A-Za-z0-9._~+/=-', 12, NULL, NULL, 1),
  ('keys', 'bearer token', 'bearer ', NULL, 'A-Za-z0-9._~+/=-', 20, NULL, NULL, 1),
  ('keys', 'login in a URL', '://', NULL, 'A-Za-z0-9._~%!$&*+,;=:-', 3, ':', '@', 1),
  ('email', 'e-mail address', '@', 'A-Za-z0-9._%+-', 'A-Za-z0-9.-', 4, '.', NULL, 0)
ON CONFLICT (profile, anchor, kind) DO NOTHING;

-- Options of commands. An anchor alone is too short to tell: the command must stand before it.
INSERT INTO main.blackbox_secrets(profile, name, anchor, after, least, holds, keeps, line)
SELECT 'keys', 'login', column1, coalesce(column4, '*-:=@-Z^_a-z~!#$%'), column2, column3, 1, column5 FROM (VALUES
  (' -u ', 5, ':', NULL, 'curl|http|wget|mongo|jfrog'), ('--user ', 5, ':', NULL, '--user '), (' -U ', 5, '%', NULL, 'smb|rpcclient'),
  (' -p', 3, NULL, NULL, 'mysql |mysqldump |mysqladmin |mariadb |mariadb-dump |7z |sshpass '), (' -k ', 4, NULL, NULL, 'openssl '),
  (' -p ', 4, NULL, NULL, 'sshpass|docker login|podman login|registry login|twine upload|mongo|az login|oc login'), (' -w ', 4, NULL, NULL, 'ldap'),
  (' -P ', 4, NULL, NULL, 'zip |sqlcmd |bcp '), (' -a ', 6, NULL, NULL, 'redis-cli|http '), (' pass:|''pass:', 3, NULL, NULL, '-pass'),
  ('PASSWORD |API_KEY |TOKEN |KEY |SECRET ', 4, NULL, NULL, 'ENV |setx |setenv |set -'),
  ('SecureString ', 4, NULL, '''', 'ConvertTo-'), (' BY ', 3, NULL, '''', 'IDENTIFIED'), (' by ', 3, NULL, '''', 'create user|alter user|grant '),
  (' PASSWORD ', 3, NULL, '''', 'USER|ROLE|User|Role'), ('password ', 3, NULL, '''', 'create user|create role|alter user|alter role')) AS t
WHERE 1 ON CONFLICT (profile, anchor, kind) DO NOTHING;

-- A private key is lines of base64: nothing else after BEGIN is masked.
INSERT INTO main.blackbox_secrets(profile, name, anchor, after, least)
SELECT 'keys', 'private key', replace('-----BEGIN PRIVATE ~ RSA PRIVATE ~ EC PRIVATE ~ DSA PRIVATE ~ OPENSSH PRIVATE ~ ENCRYPTED PRIVATE '
  || 'KEY-----|-----BEGIN PGP PRIVATE KEY BLOCK-----|DEK-Info: AES-128-CBC,|DEK-Info: AES-256-CBC,|DEK-Info: DES-EDE3-CBC,',
  '~', 'KEY-----|-----BEGIN'), 'A-Za-z0-9+/=' || char(10, 13), 40 WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;

-- Names: of members, in the environment, in files, headers, URLs and options.
INSERT INTO main.blackbox_secrets(profile, kind, name, anchor, after, least, holds, bits)
SELECT 'keys', column2, replace(value, '_', ' '), value, column3, column4, column5, column6 FROM (VALUES
  ('password passwd passphrase passcode', 'name', NULL, 1, NULL, NULL),
  ('secret client_secret secret_key api_key access_key private_key access_token refresh_token id_token auth_token
session_token authorization connection_string account_key shared_access_key encryption_key signing_key webhook_secret
master_key service_role_key credential secret_access_key secret_key_base auth_key auth_salt nonce_key nonce_salt logged_in_key logged_in_salt art_api recovery_code recovery_codes backup_codes', 'name', NULL, 4, NULL, NULL),
  ('psk', 'name', NULL, 8, NULL, NULL), ('cookie', 'name', 'A-Za-z0-9._~%!$&*+,;=:@#/ -', 8, '=', NULL),
  ('token auth pwd sid private_key_id client_key_data _pass pat sig credentials', 'entropy', NULL, 8, NULL, 2.75),
  ('key', 'entropy', NULL, 16, NULL, 3), ('session sessionid', 'entropy', NULL, 32, NULL, 4),
  ('public_key cache_key primary_key foreign_key sort_key partition_key idempotency_key object_key row_key page_token
next_token continuation_token cancel_token ssh_key host_key cookie_policy thought_signature', 'never', NULL, 1, NULL, NULL)) AS t,
  json_each('["' || replace(replace(column1, char(10), ' '), ' ', '","') || '"]') WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;

INSERT INTO main.blackbox_domains(domain, format) VALUES ('report',
  1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
