"""What clients do to a server, with answers that memcached gives. Called by clients.sh."""

import ssl
import sys
import time

import bmemcached
from bmemcached.exceptions import MemcachedException
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError
from pymemcache.serde import pickle_serde

server = ("127.0.0.1", int(sys.argv[1]))


def raises(error, call):
    try:
        call()
    except error:
        return True
    return False


client = Client(server, default_noreply=False, timeout=10)
client.flush_all()
assert client.get("a") is None and client.get("a", "other") == "other"
assert client.set("a", "1") and client.get("a") == b"1"
assert not client.add("a", "2") and client.add("b", "2") and not client.replace("c", "3")
assert client.append("b", "x") and client.prepend("b", "y") and client.get("b") == b"y2x"
assert client.incr("a", 41) == 42 and client.decr("a", 2) == 40 and client.incr("none", 1) is None
assert raises(MemcacheClientError, lambda: client.incr("b", 1))
value, version = client.gets("a")
assert client.cas("a", "new", version) and client.cas("a", "old", version) is False
assert client.cas("none", "x", version) is None
assert client.delete("a") and not client.delete("a")
assert client.set("t", "x", expire=1) and client.touch("b", 1000) and not client.touch("none", 1)
many = {f"key{number}": str(number) * number for number in range(200)}
assert client.set_many(many) == []
assert client.get_many(list(many) + ["none"]) == {k: v.encode() for k, v in many.items()}
assert client.delete_many(list(many)[:100]) and len(client.get_many(many)) == 100
large = "v" * 1_000_000
assert client.set("large", large) and client.get("large") == large.encode()
assert raises(MemcacheServerError, lambda: client.set("larger", "v" * 2_000_000))
assert client.get("b") == b"y2x", "the connection goes on"
assert client.version().startswith(b"1.6") and client.stats()[b"threads"] == 2
assert client.cache_memlimit(64)
time.sleep(1.2)
assert client.get("t") is None
assert client.set("quiet", "x", noreply=True) and client.get("quiet") == b"x"

pickled = PooledClient(server, serde=pickle_serde, max_pool_size=4, timeout=10)
pickled.set("object", {"a": [1, 2.5, None, "ä"]})
assert pickled.get("object") == {"a": [1, 2.5, None, "ä"]}
hashed = HashClient([server], use_pooling=True, timeout=10)
hashed.set_many({"h1": "1", "h2": "2"})
assert hashed.get_many(["h1", "h2"]) == {"h1": b"1", "h2": b"2"}
client.flush_all()
assert client.get("b") is None and hashed.get("h1") is None

binary = bmemcached.Client((f"127.0.0.1:{server[1]}",))
assert binary.set("a", "1") and binary.get("a") == "1" and binary.get("none") is None
value, version = binary.gets("a")
assert value == "1" and binary.cas("a", "2", version) and not binary.cas("a", "3", version)
assert binary.add("b", 1) and not binary.add("b", 2) and binary.replace("b", 3)
assert not binary.replace("none", 1) and binary.get("b") == 3
assert (binary.incr("n", 5, 10), binary.incr("n", 5), binary.decr("n", 2)) == (10, 15, 13)
numbers = {f"key{number}": number for number in range(200)}
assert binary.set_multi(numbers) == []
assert binary.get_multi([*numbers, "none"]) == numbers
assert binary.delete_multi(list(numbers)[:100]) and len(binary.get_multi(list(numbers))) == 100
assert binary.delete("a") and binary.get("a") is None
assert binary.set("large", large) and binary.get("large") == large
assert raises(MemcachedException, lambda: binary.set("larger", "v" * 2_000_000, compress_level=0))
assert binary.get("b") == 3 and client.get("b") == b"3", "the connection goes on"
assert next(iter(binary.stats().values()))["threads"] in ("2", b"2")
assert binary.flush_all() and binary.get("b") is None

# The same over TLS, where a certificate could be made.
if len(sys.argv) > 2:
    context = ssl.create_default_context(cafile=sys.argv[3])
    address = ("localhost", int(sys.argv[2]))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context.minimum_version = context.maximum_version = version
        sealed = Client(address, tls_context=context, default_noreply=False, timeout=10)
        assert sealed.set("a", "1") and sealed.get("a") == b"1"
        assert sealed.set("large", large) and sealed.get("large") == large.encode()
        many = {f"key{number}": str(number) * number for number in range(200)}
        assert sealed.set_many(many) == [] and len(sealed.get_many(list(many))) == 200
