import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

/** A store that is restored by Kafka Streams. Arguments: name=value, see job.py. */
public final class Restore {
    public static void main(String[] arguments) {
        Map<String, String> job = Peer.job(arguments);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.get("input"), Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey()
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("totals"))
            .toStream()
            .to(job.get("output"), Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = Peer.streams(builder.build(), Peer.settings(job));
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
                System.out.println("RESTORE STARTED " + System.currentTimeMillis() + " " + (end - start));
            }

            @Override
            public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long total) {
                System.out.println("RESTORE ENDED " + System.currentTimeMillis() + " " + total);
            }
        });
        streams.start();
    }
}
