import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;

/** A count on Kafka Streams that notes when each record is processed, and leaves that at its end: see times.py. */
public final class Commits {
    /** The times of one task. Belongs to its thread. */
    private static final class Times {
        private final int partition;
        private long[] at = new long[1 << 20];
        private int count = 0;

        private Times(int partition) {
            this.partition = partition;
        }

        private void note() {
            if (count == at.length) {
                at = Arrays.copyOf(at, 2 * count);
            }
            at[count++] = System.nanoTime();
        }

        private void write(DataOutputStream file) throws IOException {
            file.writeInt(partition);
            file.writeInt(count);
            for (int number = 0; number < count; number++) {
                file.writeLong(at[number]);
            }
        }
    }

    private static final class Timed extends ContextualFixedKeyProcessor<String, byte[], byte[]> {
        private final List<Times> kept;
        private Times times;

        private Timed(List<Times> kept) {
            this.kept = kept;
        }

        @Override
        public void init(FixedKeyProcessorContext<String, byte[]> context) {
            super.init(context);
            times = new Times(context.taskId().partition());
            kept.add(times);
        }

        @Override
        public void process(FixedKeyRecord<String, byte[]> record) {
            times.note();
            context().forward(record);
        }
    }

    public static void main(String[] arguments) {
        Map<String, String> job = Peer.job(arguments);
        List<Times> kept = new CopyOnWriteArrayList<>();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.get("input"), Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .processValues(() -> new Timed(kept))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .to(job.get("output"), Produced.with(Serdes.String(), Serdes.Long()));
        Path file = Path.of(job.get("state_dir") + ".times");
        Peer.streams(builder.build(), Peer.settings(job), () -> write(file, kept)).start();
    }

    private static void write(Path path, List<Times> kept) {
        try (DataOutputStream file = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path)))) {
            for (Times times : kept) {
                times.write(file);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
