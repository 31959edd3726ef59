"""Forms of secrets, after the public documentation of those who issue them and of the programs that
read them, and texts that look like some and are none. Values are made here, from a fixed seed."""
import random
import string

DICE = random.Random(41)
LOWER, ALNUM, HEX = string.ascii_lowercase + string.digits, string.ascii_letters + string.digits, "0123456789abcdef"
BASE64 = ALNUM + "+/"


def some(n, letters=ALNUM):
    """n characters with some of each kind."""
    while True:
        made = "".join(DICE.choices(letters, k=n))
        if n < 8 or letters == string.digits or sum(c.isdigit() for c in made) > 1 and sum(c.isalpha() for c in made) > 1:
            return made


def pem(kind, end="\n"):
    lines = end.join(some(64, BASE64) for _ in range(3)) + end + some(20, BASE64) + "=="
    return f"-----BEGIN {kind}-----{end}{lines}", f"{end}-----END {kind}-----"


def prefixed():
    upper = string.ascii_uppercase + string.digits
    for before, n, letters in [
            ("sk-ant-api03-", 95, ALNUM + "_-"), ("sk-ant-oat01-", 80, ALNUM), ("sk-", 48, ALNUM), ("sk-proj-", 120, ALNUM + "_-"),
            ("sk-svcacct-", 60, ALNUM), ("sk-or-v1-", 64, HEX), ("AIza", 35, ALNUM), ("GOCSPX-", 28, ALNUM), ("ya29.", 60, ALNUM),
            ("AKIA", 16, upper), ("ASIA", 16, upper), ("ghp_", 36, ALNUM), ("gho_", 36, ALNUM), ("ghs_", 36, ALNUM), ("ghu_", 36, ALNUM),
            ("ghr_", 36, ALNUM), ("github_pat_", 82, ALNUM), ("glpat-", 20, ALNUM), ("gldt-", 20, ALNUM), ("xoxb-", 50, ALNUM),
            ("xoxp-", 60, ALNUM), ("xapp-1-", 60, ALNUM), ("sk_live_", 24, ALNUM), ("sk_test_", 99, ALNUM), ("rk_live_", 24, ALNUM),
            ("whsec_", 32, ALNUM), ("hf_", 34, ALNUM), ("npm_", 36, ALNUM), ("pypi-AgEIcHlwaS5vcmc", 100, ALNUM), ("gsk_", 52, ALNUM),
            ("xai-", 80, ALNUM), ("pplx-", 48, ALNUM), ("r8_", 37, ALNUM), ("dop_v1_", 64, HEX), ("hvs.", 90, ALNUM), ("shpat_", 32, HEX),
            ("shpss_", 32, HEX), ("lin_api_", 40, ALNUM), ("ntn_", 46, ALNUM), ("secret_", 43, ALNUM), ("dapi", 32, HEX),
            ("dp.pt.", 43, ALNUM), ("NRAK-", 27, upper), ("glsa_", 41, ALNUM), ("figd_", 40, ALNUM), ("ATATT3xFfGF0", 180, ALNUM),
            ("ATBB", 32, ALNUM), ("sntrys_eyJ", 100, ALNUM), ("dckr_pat_", 27, ALNUM), ("pul-", 40, HEX), ("pscale_tkn_", 43, ALNUM),
            ("sbp_", 40, HEX), ("tskey-auth-", 30, ALNUM), ("HRKU-", 36, ALNUM + "-"), ("rubygems_", 48, HEX), ("sq0atp-", 22, ALNUM),
            ("SK", 32, HEX), ("key-", 32, HEX), ("lsv2_pt_", 32, HEX), ("tvly-", 32, ALNUM), ("AGE-SECRET-KEY-1", 58, upper)]:
        yield "use {} here", before + some(n, letters)
    yield "PMAK {}", "PMAK-" + some(24, HEX) + "-" + some(34, HEX)
    yield "mail: {}", "SG." + some(22) + "." + some(43)
    yield "jwt {}", "eyJ" + some(30) + ".eyJ" + some(60) + "." + some(43)
    yield "https://api.telegram.org/{}/sendMessage", "bot" + some(10, string.digits) + ":AA" + some(33)
    yield "post https://hooks.slack.com/services/{}", "T" + some(8).upper() + "/B" + some(8).upper() + "/" + some(24)
    yield "https://discord.com/api/webhooks/{}", some(18, string.digits) + "/" + some(68)


def named():
    for form in [
            "OPENAI_API_KEY={}", "export OPENAI_API_KEY={}\n", 'OPENAI_API_KEY="{}"', "OPENAI_API_KEY='{}'", "API_KEY = {}",
            "set AZURE_OPENAI_KEY={}", "$env:API_KEY = \"{}\"", "ENV API_TOKEN={}", "AWS_SECRET_ACCESS_KEY={}", "aws_secret_access_key = {}",
            "aws_session_token={}", '"api_key": "{}"', "'apiKey': '{}',", '{{"token": "{}"}}', '{{"access_token":"{}","type":"x"}}',
            '{{"refresh_token": "{}"}}', "token: {}", "api_key: {}", "secret: '{}'", "client_secret: {}", "x-api-key: {}", "X-Api-Key: {}",
            "x-goog-api-key: {}", "Authorization: Bearer {}", "authorization: bearer {}", "Authorization: token {}",
            "Authorization: Basic {}", "Authorization: ApiKey {}", "Authorization: {}", "Proxy-Authorization: Basic {}",
            "curl -H 'Authorization: Bearer {}' https://x", 'curl -H "x-api-key: {}" https://x', "X-Auth-Token: {}", "PRIVATE-TOKEN: {}",
            "https://x.example/v1?api_key={}&page=2", "https://x.example/?access_token={}", "https://x.example/?a=1&token={}#top",
            "--api-key={}", "--api-key {} --verbose", "--token {}", "--token={}", "//registry.example/:_authToken={}", "<apiKey>{}</apiKey>",
            "<token>{}</token>", 'os.environ["API_KEY"] = "{}"', "api_key='{}',", 'apiKey: "{}",', 'const token = "{}";', "SECRET_KEY = '{}'",
            "app.config['SECRET_KEY'] = '{}'", 'client-key-data: "{}"', '"private_key_id": "{}"', "my api key is {}", "the token is: {}",
            "here is the key: `{}`", 'headers = {{"Authorization": "Bearer {}"}}', '"auth": "{}"', "SessionId={}", "JWT_SECRET={}",
            "AccountKey={};EndpointSuffix=core.windows.net", "SharedAccessKey={}", '{{"name":"Authorization","value":"Bearer {}"}}',
            '{{"name":"x-api-key","value":"{}"}}', "NPM_TOKEN={}", "GH_TOKEN={} gh pr list", "ENCRYPTION_KEY: {}"]:
        yield form, some(40)
    for form in [
            "DB_PASSWORD={}", 'DB_PASSWORD="{}"', "PGPASSWORD={} psql", "password: {}", "password: '{}'", "  password: {}\n  user: bob",
            "password={}", '"password": "{}"', '{{"user":"bob","password":"{}"}}', "passwd: {}", "--password={}", "--password {}",
            "<password>{}</password>", "Server=x;User Id=sa;Password={};", "machine x login bob password: {}", "pwd={}",
            "MYSQL_ROOT_PASSWORD: {}", "spring.datasource.password={}", "password = \"{}\"", "define('DB_PASSWORD' => '{}')",
            "https://x.example/login?user=bob&password={}", "sshpass -p {} ssh x", "the password is {}"]:
        yield form, "Tr0ub4dor" + some(4)
    yield "passphrase: \"{}\"", "correct horse battery staple"
    yield "postgres://{}@db.example/app", "bob:" + some(12)
    yield "https://{}@github.com/x/y.git", "oauth2:" + some(20)
    yield "redis://{}@cache:6379/0", "default:" + some(16)
    yield "curl -u {} https://x.example", "bob:" + some(12)
    yield "Cookie: {}", "session=" + some(32) + "; theme=dark"
    yield "Set-Cookie: {}", "sid=" + some(32) + "; Path=/; HttpOnly"
    yield '{{"cookie":"{}"}}', "sid=" + some(32)


def blocks():
    for kind in ["RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"]:
        key, end = pem(kind)
        yield "{}" + end, key
    key, end = pem("PRIVATE KEY", "\\n")
    yield '"private_key": "{}' + end + '\\n"', key


def more():
    """Forms of other programs."""
    for form in [
            "GITHUB_TOKEN: {}", "- name: API_KEY\n  value: {}", "ApiKey: {}", "'x-api-key': '{}'", "x-functions-key: {}",
            "Ocp-Apim-Subscription-Key: {}", "--auth-token {}", "--secret={}", "-H 'X-API-KEY: {}'", "setx OPENAI_API_KEY {}",
            'api_key := "{}"', "apiKey => '{}'", "?key={}", "&sig={}", "openai.api_key = '{}'",
            'client = OpenAI(api_key="{}")', "new Client({{apiKey: '{}'}})", '--header "Authorization: Bearer {}"',
            '["--token","{}"]', '<add key="ApiKey" value="{}"/>', "<client_secret>{}</client_secret>",
            "jdbc:mysql://h/db?user=a&password={}", "amqp://user:{}@host", "mongodb+srv://bob:{}@c.mongodb.net/db",
            "ftp://bob:{}@h", "PASSWORD='{}'", '"Password" : "{}"', "db_pass: {}", "DB_PASS={}", "SMTP_PASSWORD={}",
            "ansible_ssh_pass={}", "root_password = {}", "os.environ['SECRET'] = '{}'", 'process.env.SECRET = "{}"',
            'System.setProperty("password", "{}")', "config.set('api_key', '{}')", "headers.set('Authorization', 'Bearer {}')",
            '{{"headers":[["authorization","Bearer {}"]]}}', '{{"Authorization":["Bearer {}"]}}',
            '{{"headers":{{"x-api-key":"{}"}}}}', '{{"env":{{"OPENAI_API_KEY":"{}"}}}}', '{{"OPENAI_API_KEY": "{}"}}',
            "docker login -p {} -u bob", "mysql -uroot -p{}", "redis-cli -a {}", "PGPASSWORD='{}' psql", 'export SECRET="{}"',
            "Cookie: a=b; session={}", "csrf_token={}", "X-CSRF-Token: {}", "X-Vault-Token: {}", "X-Amz-Security-Token: {}",
            "X-GitLab-Token: {}", "CIRCLE_TOKEN={}", "SLACK_SIGNING_SECRET={}", "DJANGO_SECRET_KEY='{}'", "secretKey: {}",
            "secret-key: {}", "accessToken={}", '"accessKeyId":"x","secretAccessKey":"{}"', 'storage_account_key = "{}"',
            "SharedAccessSignature sig={}", "private_token={}", "deploy_token: {}", "oauth_token={}", "oauth_token_secret={}",
            "consumer_secret={}", "app_secret: {}", "webhook_secret: {}", "TWILIO_AUTH_TOKEN={}", "encryptionKey: '{}'",
            "pat: {}", "API Key: {}", "API token is {}", "my password is {}", "Password: {}", "username: bob, password: {}",
            "pw={}", "SECRET {}", "$ export TOKEN={} && run"]:
        yield form, "Tr0ub4dor&3x" if "ass" in form or "pw" in form else some(40)
    yield "X-Amz-Signature={}", some(64, HEX)


def others():
    """Of the lists of other scanners, and of commands, files and languages."""
    upper = string.ascii_uppercase + string.digits
    for before, n, letters in [
            ("LTAI", 20, ALNUM), ("p8e-", 32, ALNUM), ("CLOJARS_", 60, LOWER), ("duffel_test_", 43, ALNUM), ("EZAK", 54, ALNUM),
            ("FLWSECK_TEST-", 32, HEX), ("fio-u-", 64, ALNUM), ("pnu_", 36, LOWER), ("xkeysib-", 64, HEX), ("ops_eyJ", 250, ALNUM),
            ("AKCp", 69, ALNUM), ("CFPAT-", 43, ALNUM), ("bkua_", 40, HEX), ("sgp_", 40, HEX), ("phx_", 43, ALNUM),
            ("$apr1$a1b2c3d4$", 22, ALNUM), ("$2b$12$", 53, ALNUM), ("$argon2id$v=19$m=65536,t=3,p=4$", 60, ALNUM)]:
        yield "use {} here", before + some(n, letters)
    yield "Api-Token {}", "dt0c01." + some(24, upper) + "." + some(64, upper)
    yield "https://x.webhook.office.com/webhookb2/{}", some(36, HEX) + "@" + some(36, HEX) + "/IncomingWebhook/" + some(32, HEX)
    for form in [
            "mysql -u root -p{} app", "mysqldump -uroot -p'{}' app > x", 'mariadb -p"{}" -e "select 1"', "openssl rsa -in k.pem -passin pass:{}",
            "openssl genrsa -aes256 -passout 'pass:{}' 2048", "openssl enc -aes-256-cbc -k {} -in a", "docker login -u bob -p {} x",
            "docker login \\\n  -u bob \\\n  -p {}", "curl -s -u 'bob:{}' https://x", 'curl --user "bob:{}" https://x', "7z a -p{} x.7z y",
            "zip -P {} x.zip y", "redis-cli -h c -a {} ping", "ldapsearch -x -D cn=a -w {}", "gpg --batch --passphrase {} -c a",
            "CREATE USER app IDENTIFIED BY '{}';", "ALTER ROLE app WITH PASSWORD '{}';", "ENV MYSQL_ROOT_PASSWORD {}",
            'ConvertTo-SecureString "{}" -AsPlainText', "db:5432:app:bob:{}", 'psk="{}"', "ansible_become_pass: {}", "SECRET_KEY_BASE={}",
            "RAILS_MASTER_KEY={}", "define('AUTH_KEY', '{}');", '{{"password": {{"value": "{}"}}}}',
            '{{"adminPassword":{{\n  "type": "secure", "value": "{}"\n}}}}', 'password: {{"value": "{}"}}', '{{"pass\\u0077ord": "{}"}}',
            '{{"\\u0070\\u0061ssword":"{}"}}', "password\\u003d{}", "secret: |\n  {}\nuser: bob", "  password: >-\n      {}\n  user: bob",
            "+secret: |2\n+    {}\n+user: bob", "    11\u2192secret: |\n    12\u2192  {}\n    13\u2192user: bob",
            "    11\tsecret: |\n    12\t  {}\n    13\tuser: bob", "private_key: |\n  first line\n\n  {}"]:
        yield form, "Tr0ub4dor3x" + some(4)


FORMS = [*prefixed(), *named(), *blocks(), *more(), *others()]

INNOCENT = """task-force-of-the-whole-department-of-works
disk-usage-is-high-everywhere-today
Bearer of bad news
the password: is not here
react@18.2.0
{"password":{"type":"string"}}
{"password":""}
{"password":null}
{"max_tokens":5,"tokens":["password"]}
{"token":" the","logprob":-0.12,"bytes":[32,116]}
{"usage":{"prompt_tokens":9,"completion_tokens":12}}
token_count: 1520
max_tokens=4096
password = getpass.getpass()
token = os.environ["TOKEN"]
const token = process.env.API_TOKEN;
api_key=api_key,
password=password
def login(user, password: str) -> bool:
if (password == null) return;
password: required
"password": "string"
password: string;
"password": "must be at least 8 characters"
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
Authorization: Bearer ${TOKEN}
-H "Authorization: Bearer $OPENAI_API_KEY"
OPENAI_API_KEY=${OPENAI_API_KEY}
OPENAI_API_KEY=<your key>
OPENAI_API_KEY=your-api-key-here
export API_KEY=$(cat key.txt)
--password-file=/run/secrets/db
PASSWORD_FILE=/run/secrets/db
secret_name: my-secret
sort_key=created_at
primary_key: id
"key": "value"
key: ArrowDown
{"key":"Enter","code":13}
keyboard: qwerty
monkey: 12 bananas
author: John Smith
authentication: none
cookie: accept all
Cookies: yes
pass: 12, fail: 0
3 pass, 1 fail
tests pass: true
compass: north
PWD=/home/bob/project
cwd: /usr/src/app
commit a94a8fe5ccb19ba61c4c0873d391e987982fbbd3
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
"integrity": "sha512-Mc0DNwCOA7QJ8iO9pYv9QmQPMPyAVQK8eVDb7Ei0dQVL5sRoM3RIn8UPj1LHZ2DaS1W7oyHkKxGKJB2hsR4VXQ=="
id: 019d6d29-8cf7-7fe3-adc9-8c3e4d9d5603
"call_id":"call_nJk6RCITpDCO67dXvbLvuPAQ"
"tool_use_id":"toolu_01FpFkMMxM5JKCwBjB72vfJw"
"id":"msg_01XFDUDYJgAACzvnptvVoYEL"
"fingerprint":"fp_44709d6fcb"
"signature":"EqQBCkYIBxgCKkBmMzQyZTk4YTEyYjM0ZDU2Zjc4OTBhYmNkZWY="
the token is expired
the token is missing, please log in again
invalid token: unexpected end of JSON input
SyntaxError: Unexpected token: } in line 12
unexpected token '<'
the key is in commit a94a8fe5ccb19ba61c4c0873d391e987982fbbd3
the secret is to keep going
press any key to continue
the key point is that tests pass
AKIA
sk-short
ghp_x
sk-learn is a library
import sklearn as sk
eyJhbGciOiJIUzI1NiJ9 is a header
https://example.com:8080/a@b
git@github.com:entireio/git-sync.git
https://user.example.com/path?page=2&sort=key
user@example.com
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
model: claude-3-opus-20240229
gpt-4o-mini-2024-07-18
region=us-east-1
version: 1.2.3-beta.4
Date: 2026-04-08T12:58:53.226Z
x-request-id: 7f9c24e8b5a1
content-type: application/json
etag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
ssh-rsa is an algorithm
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
-----BEGIN RSA PRIVATE KEY----- is how it begins; rm -rf / is what it does
echo -----BEGIN PRIVATE KEY-----; rm -rf /home; curl example.com
Enter your password:
Password for 'https://github.com':
git config credential.helper store
credentials: include
"credentials": "same-origin"
tokens: 66328092
cache_key = f"{user}:{page}"
self.token = token
token = self._next_token()
return jwt.decode(token, key, algorithms=["HS256"])
print(f"password={password}")
SELECT password FROM users WHERE id = 7
sort -u file.txt
secret: false
foreign key (id) references orders(id)
public_key: ssh-ed25519
api_key: Optional[str] = None
password: ********
password=xxxxxxxx
[masked: password]
The secret to success is hard work
password reset link sent to bob
Forgot password? Click here
token budget: 200000
"token_type":"bearer"
tokenizer = AutoTokenizer.from_pretrained('gpt2')
key_id: 12345678abc
for key, value in d.items():
key = f"a-{i}"
api_key_env = 'OPENAI_API_KEY'
api_key_env_var: OPENAI_API_KEY
apiKeyHelper: /usr/bin/helper1
os.getenv('API_KEY2')
client = OpenAI(api_key=os.environ.get("KEY1"))
password_hash = bcrypt.hash(password1)
auth: { type: 'oauth2' }
"auth":{"type":"oauth2"}
session: 019d6d29-8cf7-7fe3-adc9-8c3e4d9d5603
session_id=019d6d29-8cf7-7fe3-adc9-8c3e4d9d5603
"sessionId":"019d6d29-8cf7-7fe3-adc9-8c3e4d9d5603"
"prompt_cache_key":"019d6d29-8cf7-7fe3-adc9-8c3e4d9d5603"
"encrypted_content":"gAAAAABpabcdEfgHijKL12345678"
"required":["password","username1"]
key: value1
keys: a1, b2, c3
"key":"cmd+shift+p"
author=John1
tokens=12345678
MAX_TOKENS=12345678
total_tokens: 12345
pass 12 of 34
passed: 12
bypass=1
auth = HTTPBasicAuth('user1', pw)
cookie_consent=true12345
Secret Garden, chapter 12
secretary: Bob1234
keyframes: fade1234
hotkey=Ctrl1234
https://example.com/a/b?x=12345678&y=abcd1234
git log --author=bob1234
sha1:a94a8fe5ccb19ba61c4c0873d391e987982fbbd3
Signed-off-by: Bob <bob@x.org>
password1 != password2
if token == 'abc12345':
expect(token).toBe('abc12345')
validate_token(token=tok1)
token=self.tokens[0]
secret=None
$ cat secrets.yaml
secretKeyRef: name: db1, key: password
image_pull_secret: regcred
API key not found
Invalid API key provided
an API key (see docs)
const key = item.id + '1';
key => map1.get(key)
case 'password': return 12345;
API_KEY = os.environ["API_KEY"]
password = getpass.getpass("Password: ")
password = input("Enter your password: ")
prompt("password: " + name + " is wrong")
errors.password = "Wrong password. Try again."
mkdir -p /tmp/build && cd /tmp/build
ssh -p 2222 host.example.com
docker run -u 1000:1000 -p 8080:80 nginx
mysql -u root -p app < dump.sql
mysql -u root -p"$MYSQL_PWD" app
mysql --port=3306 --protocol=tcp
mysqldump -p$PASS app; mkdir -pv x
psql -p 5432 -U app
openssl rsa -in k.pem -passin env:KEY_PASS
openssl rsa -in k.pem -passin file:pass.txt
curl -u "$USER:$PASS" https://example.com
docker login -u bob -p $TOKEN x
pass: 12 of 14
num_pass=3
tests_pass: 1204
"token": {"value": null}
"tokens": {"value": 5012, "unit": "tokens"}
"key": {"value": "Enter"}
"secret": {"type": "object", "value": {"type": "string"}}
password: |
secret: >
| secret: | what nobody knows |
password: |\n  ${DB_PASSWORD}
SECRET_KEY_BASE=$(bin/rails secret)
a \\u003c b \\u0026\\u0026 c \\u0061
the cost is $5$ or $6$ a month
alter user app set quota = '5 GB'
rows are identified by 'name' and 'id'
the "password" of a user""".split("\n")
