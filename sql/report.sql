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

INSERT INTO main.report_masks(profile, name, anchor, after, least, holds)
SELECT 'keys', column1, value, column3, column4, column5 FROM (VALUES
  ('Anthropic key', 'sk-ant-', 'A-Za-z0-9_-', 20, NULL), ('OpenAI key', 'sk-', 'A-Za-z0-9_-', 20, NULL),
  ('Google key', 'AIza', 'A-Za-z0-9_-', 35, NULL), ('Google secret', 'GOCSPX-', 'A-Za-z0-9_-', 20, NULL),
  ('Google token', 'ya29.', 'A-Za-z0-9_.-', 20, NULL), ('AWS key', 'AKIA ASIA ABIA ACCA', 'A-Z0-9', 16, NULL),
  ('Bedrock key', 'ABSK', 'A-Za-z0-9+/=', 60, NULL),
  ('GitHub token', 'ghp_ gho_ ghu_ ghs_ ghr_', 'A-Za-z0-9', 30, NULL),
  ('GitHub token', 'github_pat_', 'A-Za-z0-9_', 30, NULL),
  ('GitLab token', 'glpat- gldt- glrt- glcbt- glptt- glagent-', 'A-Za-z0-9_.-', 20, NULL),
  ('Slack token', 'xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxe.xoxp- xapp-', 'A-Za-z0-9.-', 10, NULL),
  ('Stripe key', 'sk_live_ sk_test_ rk_live_ rk_test_', 'A-Za-z0-9', 16, NULL),
  ('Stripe secret', 'whsec_', 'A-Za-z0-9+/=', 20, NULL),
  ('Hugging Face token', 'hf_ api_org_', 'A-Za-z0-9', 30, NULL), ('npm token', 'npm_', 'A-Za-z0-9', 30, NULL),
  ('PyPI token', 'pypi-', 'A-Za-z0-9_-', 50, NULL), ('Groq key', 'gsk_', 'A-Za-z0-9', 30, NULL),
  ('xAI key', 'xai-', 'A-Za-z0-9', 30, NULL), ('Perplexity key', 'pplx-', 'A-Za-z0-9', 30, NULL),
  ('Replicate token', 'r8_', 'A-Za-z0-9', 30, NULL), ('SendGrid key', 'SG.', 'A-Za-z0-9_.-', 40, '.'),
  ('DigitalOcean token', 'dop_v1_ doo_v1_ dor_v1_', 'a-f0-9', 40, NULL),
  ('JSON web token', 'eyJ', 'A-Za-z0-9_.-', 40, '.'), ('Vault token', 'hvs. hvb. s.', 'A-Za-z0-9_-', 24, NULL),
  ('Shopify token', 'shpat_ shpca_ shppa_ shpss_', 'a-fA-F0-9', 32, NULL),
  ('Linear key', 'lin_api_ lin_oauth_', 'A-Za-z0-9', 30, NULL),
  ('Notion token', 'secret_ ntn_', 'A-Za-z0-9', 40, NULL), ('Databricks token', 'dapi', 'a-f0-9-', 32, NULL),
  ('Doppler token', 'dp.pt. dp.st. dp.ct.', 'A-Za-z0-9._-', 30, NULL), ('Postman key', 'PMAK-', 'a-f0-9-', 40, NULL),
  ('New Relic key', 'NRAK- NRJS- NRAL-', 'A-Z0-9a-z', 19, NULL),
  ('Grafana token', 'glsa_ glc_', 'A-Za-z0-9_+/=', 30, NULL), ('Figma token', 'figd_', 'A-Za-z0-9_-', 30, NULL),
  ('Airtable token', 'pat', 'A-Za-z0-9.', 60, '.'),
  ('Atlassian token', 'ATATT3 ATBB ATCTT3', 'A-Za-z0-9_=-', 24, NULL),
  ('Sentry token', 'sntrys_ sntryu_', 'A-Za-z0-9+/=_', 30, NULL),
  ('Docker token', 'dckr_pat_ dckr_oat_', 'A-Za-z0-9_-', 20, NULL), ('Pulumi token', 'pul-', 'a-f0-9', 40, NULL),
  ('PlanetScale token', 'pscale_tkn_ pscale_pw_ pscale_oauth_', 'A-Za-z0-9_.-', 30, NULL),
  ('Supabase token', 'sbp_ sb_secret_', 'A-Za-z0-9_', 20, NULL), ('Tailscale key', 'tskey-', 'A-Za-z0-9-', 20, NULL),
  ('Heroku key', 'HRKU-', 'A-Za-z0-9_-', 30, NULL), ('RubyGems key', 'rubygems_', 'a-f0-9', 40, NULL),
  ('Square token', 'sq0atp- sq0csp- EAAA', 'A-Za-z0-9_-', 22, NULL), ('Twilio key', 'SK', 'a-f0-9', 32, NULL),
  ('Telegram token', 'bot', '0-9A-Za-z_:-', 40, ':'), ('Mailgun key', 'key-', 'a-f0-9', 32, NULL),
  ('OpenRouter key', 'sk-or-', 'A-Za-z0-9-', 40, NULL), ('Tavily key', 'tvly-', 'A-Za-z0-9-', 20, NULL),
  ('LangSmith key', 'lsv2_pt_ lsv2_sk_', 'a-f0-9_', 32, NULL),
  ('Fly token', 'FlyV1 fm2_', 'A-Za-z0-9+/=_ ,', 40, NULL), ('age key', 'AGE-SECRET-KEY-1', 'A-Z0-9', 50, NULL),
  ('Cloudflare token', 'v1.0-', 'a-f0-9-', 80, NULL),
  ('Firecrawl key', 'fc- e2b_ fw_ pa- nfp_ r2_', 'A-Za-z0-9_-', 30, NULL),
  ('Facebook token', 'EAACEdEose0cBA', 'A-Za-z0-9', 20, NULL), ('Dropbox token', 'sl.', 'A-Za-z0-9_-', 80, NULL),
  ('Azure secret', 'AccountKey= SharedAccessKey= sig=', 'A-Za-z0-9+/=%', 30, NULL)) AS t,
  json_each('["' || replace(column2, ' ', '","') || '"]') WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;

INSERT INTO main.report_masks(profile, name, anchor, before, after, least, holds, ends, keeps)
VALUES
  ('keys', 'cookie', 'ookie: ', NULL, 'A-Za-z0-9._~%!$&*+,;=:@#/ -', 8, '=', NULL, 1),
  ('keys', 'login of a command', ' -u ', NULL, 'A-Za-z0-9._~%!$&*+,;=:@#-', 5, ':', NULL, 1),
  ('keys', 'Discord webhook', '/api/webhooks/', NULL, 'A-Za-z0-9/_-', 60, NULL, NULL, 1),
  ('keys', 'Slack webhook', 'hooks.slack.com/services/', NULL, 'A-Za-z0-9/', 20, NULL, NULL, 1),
  ('keys', 'bearer token', 'Bearer ', NULL, 'A-Za-z0-9._~+/=-', 12, NULL, NULL, 1),
  ('keys', 'bearer token', 'bearer ', NULL, 'A-Za-z0-9._~+/=-', 20, NULL, NULL, 1),
  ('keys', 'basic login', 'Authorization: Basic ', NULL, 'A-Za-z0-9+/=', 8, NULL, NULL, 1),
  ('keys', 'login in a URL', '://', NULL, 'A-Za-z0-9._~%!$&*+,;=:-', 3, ':', '@', 1),
  ('email', 'e-mail address', '@', 'A-Za-z0-9._%+-', 'A-Za-z0-9.-', 4, '.', NULL, 0)
ON CONFLICT (profile, anchor, kind) DO NOTHING;

-- A private key is lines of base64: nothing else after BEGIN is masked.
INSERT INTO main.report_masks(profile, name, anchor, after, least)
SELECT 'keys', 'private key', '-----BEGIN ' || value || '-----', 'A-Za-z0-9+/=' || char(10, 13), 40
  FROM json_each('["PRIVATE KEY","RSA PRIVATE KEY","EC PRIVATE KEY","DSA PRIVATE KEY","OPENSSH PRIVATE KEY",
  "ENCRYPTED PRIVATE KEY","PGP PRIVATE KEY BLOCK"]') WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;

-- What gives a value to a name. An anchor that ends with = and stays is tried with each of them.
INSERT INTO main.report_masks(profile, name, anchor, after)
SELECT '=', 'sign', value, '!' FROM json_each('["=","=\"","=''","=\\\"","=\\\\\\\"",": ",": ''",": \"",": \\\"",
  ": \\\\\\\"",": `"," = "," = ''"," = \""," = \\\""," = \\\\\\\"","\\\\\\\"] = \\\\\\\"","'': ''","'': \"",
  "\\\": \\\"","\\\":\\\"",
  "''] = ''","\"] = \"","\\\"] = \\\"",">","'' => ''"," is "," is: "]') WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;

-- Values of names: in the environment, in files, headers, URLs and options.
INSERT INTO main.report_masks(profile, name, anchor, before, after, least, keeps)
SELECT 'keys', 'secret in the environment', value || '=', 'A-Z0-9_', 'A-Za-z0-9_.!#%*+/=?@^~:-',
       iif(value = 'PASSWORD', 4, 8), 1
  FROM json_each('["API_KEY","SECRET","TOKEN","PASSWORD","SECRET_KEY","ACCESS_KEY","OPENAI_KEY",
  "ENCRYPTION_KEY"]') WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;
INSERT INTO main.report_masks(profile, name, anchor, after, least, keeps)
SELECT 'keys', 'value of ' || value, value || '=', 'A-Za-z0-9_.!#%*+/=?@^~-', iif(value LIKE 'pass%', 4, 8), 1
  FROM json_each('["password","passwd","pwd","Password","passphrase","secret","client_secret","api_key","apikey",
  "apiKey",
  "api-key","Api-Key","access_token","refresh_token","token","Token","auth_token","authToken","_authToken","secret_key",
  "AccountKey","SharedAccessKey","SessionId","session","sid","api key","client-key-data","auth","aws_session_token",
  "aws_secret_access_key","AWS_SECRET_ACCESS_KEY","key"]') WHERE 1
UNION ALL
SELECT 'keys', 'value of ' || trim(value, '-: '), value, 'A-Za-z0-9_.!#%*+/=?@^~-', iif(value LIKE '%pass%', 4, 8), 1
  FROM json_each('["--password ","--api-key ","--token ","Authorization: ","authorization: ","Authorization: token ",
  "authorization: token ","authorization: bearer ","Authorization: ApiKey ","Proxy-Authorization: Basic ",
  "Private-Token: ","PRIVATE-TOKEN: ","X-Auth-Token: ","x-auth-token: ","sshpass -p ","curl -u "]') WHERE 1
ON CONFLICT (profile, anchor, kind) DO NOTHING;
INSERT INTO main.report_masks(profile, name, kind, anchor, least)
VALUES ('keys', 'member token', 'member', 'token', 8), ('keys', 'member auth', 'member', 'auth', 8),
  ('keys', 'member private_key_id', 'member', 'private_key_id', 8)
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

INSERT INTO main.blackbox_domains(domain, format) VALUES ('report',
  1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
