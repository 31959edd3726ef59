"""A server on loopback that answers as the HTTP API of a model, and in ways that go wrong.

/whole     one JSON body
/packed    the same, as gzip
/stream    three events; the second and third wait for release()
/cut       says 100 bytes, sends 7 and closes the connection
/echo      the body of the request
/empty     status 204
"""
import gzip
import http.server
import threading

EVENTS = [b"data: one\n\n", b"data: two\n\n", b"data: three\n\n"]
WHOLE = b'{"content":"a caf\xc3\xa9"}'


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, status=200, length=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        getattr(self, self.path[1:])(body)

    def whole(self, _):
        self.answer(WHOLE)

    def packed(self, _):
        self.answer(gzip.compress(WHOLE), Content_Encoding="gzip")

    def echo(self, body):
        self.answer(body)

    def empty(self, _):
        self.answer(b"", status=204)

    def cut(self, _):
        self.answer(b"data: o", length=100)
        self.close_connection = True

    def stream(self, _):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i, event in enumerate(EVENTS):
            if i > 0 and not self.server.gate.acquire(timeout=20):
                break
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.gate = threading.Semaphore(0)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def release(self):
        """Lets the stream send one more event."""
        self.gate.release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
