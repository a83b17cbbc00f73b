import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** Hands records on, slowly, and says with which offset it begins. */
final class Brake implements FixedKeyProcessor<String, String, String> {
    private final long pauseMicros;
    private final Set<String> begun = new HashSet<>();
    private FixedKeyProcessorContext<String, String> context;

    Brake(long pauseMicros) {
        this.pauseMicros = pauseMicros;
    }

    @Override
    public void init(FixedKeyProcessorContext<String, String> context) {
        this.context = context;
    }

    @Override
    public void process(FixedKeyRecord<String, String> record) {
        RecordMetadata at = context.recordMetadata().orElseThrow();
        if (begun.add(at.topic())) {
            System.err.println("begins with " + at.topic() + "/" + at.partition() + "/" + at.offset());
        }
        if (pauseMicros > 0) {
            LockSupport.parkNanos(pauseMicros * 1_000);
        }
        context.forward(record);
    }
}
