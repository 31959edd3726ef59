"""Records what an agent sends to a model's API, and what comes back."""
import http.server
import threading

import blackbox
import httpx

db = blackbox.open("flight.db")


class Model(http.server.BaseHTTPRequestHandler):
    """In your program this is the API of a provider: OpenAI(http_client=client)."""
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"answer":"It is on its way."}')


server = http.server.HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
with httpx.Client() as client:
    recorder = db.record(client, agent="support")
    client.post(f"http://127.0.0.1:{server.server_port}/", content='{"ask":"Where is it?"}')
recorder.flush()
print(*db.execute("SELECT request_body, response_body FROM ring").fetchone())
# {"ask":"Where is it?"} {"answer":"It is on its way."}
