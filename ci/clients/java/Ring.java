import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.ExecutionException;
import net.spy.memcached.DefaultHashAlgorithm;
import net.spy.memcached.FailureMode;
import net.spy.memcached.KetamaConnectionFactory;
import net.spy.memcached.KetamaNodeKeyFormatter;
import net.spy.memcached.KetamaNodeLocator;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.MemcachedNode;
import net.spy.memcached.NodeLocator;

/**
 * spymemcached with libmemcached's ketama, driven by lines: {@code set KEY VALUE}, {@code get KEY},
 * each with one line as the answer. Arguments: the failure mode, the time-out of an operation in
 * milliseconds, and the servers as HOST:PORT.
 */
public class Ring {
    /** The ring's points are named as libmemcached names them. */
    static class Factory extends KetamaConnectionFactory {
        private final FailureMode mode;
        private final long timeout;

        Factory(FailureMode mode, long timeout) {
            this.mode = mode;
            this.timeout = timeout;
        }

        @Override
        public NodeLocator createLocator(List<MemcachedNode> nodes) {
            return new KetamaNodeLocator(nodes, DefaultHashAlgorithm.KETAMA_HASH,
                KetamaNodeKeyFormatter.Format.LIBMEMCACHED, new HashMap<>());
        }

        @Override
        public FailureMode getFailureMode() {
            return mode;
        }

        @Override
        public long getOperationTimeout() {
            return timeout;
        }

        @Override
        public int getTimeoutExceptionThreshold() {
            return 2;
        }

        @Override
        public long getMaxReconnectDelay() {
            return 1;
        }

        @Override
        public boolean isDaemon() {
            return true;
        }
    }

    public static void main(String[] words) throws Exception {
        List<InetSocketAddress> servers = new ArrayList<>();
        for (String server : Arrays.asList(words).subList(2, words.length)) {
            String[] parts = server.split(":");
            // With a name of its own, so that none is looked up for the address.
            byte[] address = InetAddress.getByName(parts[0]).getAddress();
            servers.add(new InetSocketAddress(InetAddress.getByAddress(parts[0], address),
                Integer.parseInt(parts[1])));
        }
        MemcachedClient client = new MemcachedClient(
            new Factory(FailureMode.valueOf(words[0]), Long.parseLong(words[1])), servers);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] line = lines.nextLine().split(" ", 3);
            System.out.println(reply(client, line));
        }
        client.shutdown();
    }

    static String reply(MemcachedClient client, String[] line) throws InterruptedException {
        try {
            if (line[0].equals("set")) {
                return client.set(line[1], 0, line[2]).get() ? "STORED" : "ERROR";
            }
            Object value = client.get(line[1]);
            return value == null ? "MISS" : "VALUE " + value;
        } catch (ExecutionException | RuntimeException error) {
            return "ERROR " + error;
        }
    }
}
