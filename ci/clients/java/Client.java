import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactory;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;

/**
 * What spymemcached does to a server, in the text and in the binary protocol, with answers that
 * memcached gives. Called by clients.sh with the server's port.
 */
public class Client {
    private static final int PATIENCE = 20;

    private final MemcachedClient client;
    private final boolean binary;

    Client(MemcachedClient client, boolean binary) {
        this.client = client;
        this.binary = binary;
    }

    static void must(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    void has(String key, Object value) {
        Object found = client.get(key);
        must(value == null ? found == null : value.equals(found), key + " is " + found);
    }

    interface Call {
        void run() throws Exception;
    }

    static void fails(Call call, String word) {
        try {
            call.run();
        } catch (Exception | Error error) {
            must(String.valueOf(error).contains(word), error);
            return;
        }
        throw new AssertionError("no " + word);
    }

    void values() throws Exception {
        must(client.flush().get(), "flush");
        must(client.getVersions().values().iterator().next().startsWith("1.6"), "version");
        has("a", null);
        must(client.set("a", 0, "1").get(), "set");
        has("a", "1");
        must(!client.add("a", 0, "2").get() && client.add("b", 0, "2").get(), "add");
        must(!client.replace("none", 0, "3").get() && client.replace("a", 0, "3").get(), "replace");
        must(client.append("b", "x").get() && client.prepend("b", "y").get(), "append");
        must(!client.append("none", "x").get(), "append to none");
        has("b", "y2x");
        has("a", "3");
        must(client.delete("b").get() && !client.delete("b").get(), "delete");
        // Flags tell the library what a value is.
        Map<String, Object> objects = new HashMap<>();
        objects.put("long", 1L << 40);
        objects.put("bytes", "\r\nEND\r\n");
        objects.put("date", new java.util.Date(0));
        objects.put("empty", "");
        objects.put("packed", "packed".repeat(10_000));
        for (Map.Entry<String, Object> entry : objects.entrySet()) {
            must(client.set(entry.getKey(), 0, entry.getValue()).get(), entry.getKey());
        }
        must(client.getBulk(objects.keySet()).equals(objects), "objects");
    }

    void numbers() throws Exception {
        must(client.incr("n", 5, 10) == 10 && client.incr("n", 5) == 15, "incr");
        must(client.decr("n", 2) == 13 && client.decr("n", 100) == 0, "decr");
        must(client.incr("none", 1) == -1, "incr of none");
        must(client.set("word", 0, "x").get(), "set");
        fails(() -> must(client.asyncIncr("word", 1).get() >= 0, "no number"), "n");
        has("word", "x");
    }

    void versions() throws Exception {
        must(client.set("v", 0, "1").get(), "set");
        CASValue<Object> found = client.gets("v");
        must("1".equals(found.getValue()), found);
        must(client.cas("v", found.getCas(), "2") == CASResponse.OK, "cas");
        must(client.cas("v", found.getCas(), "3") == CASResponse.EXISTS, "cas of an old version");
        must(client.cas("none", found.getCas(), "4") == CASResponse.NOT_FOUND, "cas of none");
        has("v", "2");
    }

    void many() throws Exception {
        Map<String, Object> all = new HashMap<>();
        for (int number = 0; number < 200; number++) {
            all.put("key" + number, "x".repeat(number));
            client.set("key" + number, 0, "x".repeat(number));
        }
        List<String> keys = new ArrayList<>(all.keySet());
        keys.add("none");
        must(client.getBulk(keys).equals(all), "bulk");
    }

    void sizes() throws Exception {
        byte[] large = new byte[1_000_000];
        new java.util.Random(1).nextBytes(large);
        must(client.set("large", 0, large).get(), "set of a large value");
        must(java.util.Arrays.equals((byte[]) client.get("large"), large), "large");
        byte[] larger = new byte[1_100_000];
        new java.util.Random(2).nextBytes(larger);
        fails(() -> must(client.set("large", 0, larger).get(), "too large"), "large");
        has("large", null);
        has("v", "2");
        must(client.set("k".repeat(250), 0, "x").get(), "set of the longest key");
        has("k".repeat(250), "x");
    }

    void times() throws Exception {
        must(client.set("brief", 1, "x").get() && client.set("kept", 1, "x").get(), "set");
        must(client.touch("kept", 1000).get() && !client.touch("none", 1).get(), "touch");
        if (binary) {
            must(client.set("touched", 1, "x").get(), "set");
            must("x".equals(client.getAndTouch("touched", 1000).getValue()), "gat");
        }
        long end = System.nanoTime() + PATIENCE * 1_000_000_000L;
        while (client.get("brief") != null && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        has("brief", null);
        has("kept", "x");
        has("touched", binary ? "x" : null);
    }

    void stats() {
        Map<String, String> found = client.getStats().values().iterator().next();
        must("2".equals(found.get("threads")), found);
    }

    public static void main(String[] words) throws Exception {
        InetSocketAddress server = new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0]));
        for (boolean binary : new boolean[] {false, true}) {
            ConnectionFactory factory = new ConnectionFactoryBuilder()
                .setProtocol(binary ? Protocol.BINARY : Protocol.TEXT)
                .setOpTimeout(PATIENCE * 1000L)
                .setMaxReconnectDelay(1)
                .build();
            Client client = new Client(new MemcachedClient(factory, List.of(server)), binary);
            client.values();
            client.numbers();
            client.versions();
            client.many();
            client.sizes();
            client.times();
            client.stats();
            must(client.client.flush().get(), "flush");
            client.has("v", null);
            client.client.shutdown();
        }
    }
}
