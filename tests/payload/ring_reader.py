"""Reads the exchanges of a ring from its tables, without the module, as docs/payload.md describes
them. It shares nothing with the module."""
CHUNK = 3500


class Numbers:
    """The numbers of a blob, one after the other."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def next(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            value |= (byte & 127) << shift
            shift += 7
            self.at += 1
            if byte < 128:
                return value


class Log:
    """The log of one agent."""

    def __init__(self, db, ring, no, page):
        self.db, self.ring, self.no = db, ring, no
        numbers = Numbers(page, 8)
        self.chunk, used, live, _places = (numbers.next() for _ in range(4))
        places = []
        for _ in range(numbers.next()):
            place, count = numbers.next(), numbers.next()
            places += range(place, place + count)
        assert len(places) == live
        self.places = dict(zip(range(self.chunk - live, self.chunk), places))
        for _ in range(numbers.next()):
            for _ in range(5):
                numbers.next()
            numbers.at += 8
        self.open = page[numbers.at:numbers.at + used]

    def bytes(self, first, count):
        found = b""
        for chunk in range(first // CHUNK, (first + count - 1) // CHUNK + 1):
            if chunk == self.chunk:
                found += self.open
            else:
                found += self.db.execute(
                    f'SELECT body FROM "{self.ring}_texts" WHERE id = ?',
                    (self.no << 32 | self.places[chunk],)).fetchone()[0][:CHUNK]
        return found[first % CHUNK:][:count]

    def body(self, at):
        numbers = Numbers(self.bytes(at, min(32, self.chunk * CHUNK + len(self.open) - at)))
        own, back = numbers.next(), numbers.next()
        shared = numbers.next() if back else 0
        before = self.body(at - back)[:shared] if back else b""
        return before + self.bytes(at + numbers.at, own) if own else before


def read(db, ring="ring"):
    """[(agent, seq, event, timestamp, request, response, meta)], in the order of agent and seq."""
    logs = {no: Log(db, ring, no, page) for no, page in db.execute(
        f'SELECT no, page FROM "{ring}_agents" WHERE page IS NOT NULL')}
    window = db.execute(f'SELECT body FROM "{ring}_texts" WHERE id = -1').fetchone()[0]

    def body(slot, value):
        if not isinstance(value, bytes):
            return value
        if value[0] == 0:
            return value[1:]
        numbers = Numbers(value, 1)
        found = logs[slot >> 29].body(numbers.next())
        assert len(found) == numbers.next()
        return found.decode() if value[0] == 1 else found

    return sorted((agent, seq, event, at, body(slot, request), body(slot, response), meta)
                  for slot, agent, seq, event, at, request, response, meta, given in db.execute(
                      "SELECT s.id, s.agent_id, seq, event_id, timestamp, request_body, "
                      f'response_body, meta, given FROM "{ring}_slots" AS s '
                      f'JOIN "{ring}_agents" AS a ON a.no = s.id >> 29')
                  if seq > given - window or slot >> 28 & 1)
