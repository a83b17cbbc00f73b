import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.internals.Change;
import org.apache.kafka.streams.kstream.internals.ChangedSerializer;

/** Writes the bytes of Kafka's serialisers, a line each: what, tab, hex. test_serdes.py has the same values. */
public final class Bytes {

    private static final List<String> LINES = new ArrayList<>();

    public static void main(final String[] args) throws Exception {
        write("STRING", Serdes.String(), "Grüße 😀");
        write("BYTES", Serdes.ByteArray(), new byte[] {0, 1, -1});
        write("SHORT", Serdes.Short(), (short) -2);
        write("INTEGER", Serdes.Integer(), -123456789);
        write("LONG", Serdes.Long(), 1234567890123456789L);
        write("FLOAT", Serdes.Float(), -1.5f);
        write("DOUBLE", Serdes.Double(), 0.1);
        write("UUID", Serdes.UUID(), UUID.fromString("6ba7b810-9dad-11d1-80b4-00c04fd430c8"));
        write("LIST(LONG)", list(Serdes.Long()), Arrays.asList(1L, null, -3L, null));
        write("LIST(STRING)", list(Serdes.String()), Arrays.asList("a", null, "", "bc"));
        write("LIST(UUID)", list(Serdes.UUID()), List.of(UUID.fromString("6ba7b810-9dad-11d1-80b4-00c04fd430c8")));
        write("LIST(LIST(SHORT))", list(list(Serdes.Short())), List.of(List.of((short) 7), List.of()));
        write("LIST(BYTES)", list(Serdes.ByteArray()), List.of());
        change("CHANGE(new)", new Change<>("new", null));
        change("CHANGE(old)", new Change<>(null, "old"));
        change("CHANGE(both)", new Change<>("new", "old"));
        change("CHANGE(long)", new Change<>("x".repeat(300), "old"));
        Files.writeString(Path.of(args[0], "bytes.tsv"), String.join("\n", LINES) + "\n");
    }

    private static <T> Serde<List<T>> list(final Serde<T> inner) {
        return Serdes.ListSerde(ArrayList.class, inner);
    }

    private static <T> void write(final String what, final Serde<T> serde, final T value) {
        add(what, serde.serializer().serialize("topic", value));
    }

    private static void change(final String what, final Change<String> change) {
        final ChangedSerializer<String> serializer = new ChangedSerializer<>(Serdes.String().serializer());
        add(what, serializer.serialize("topic", new RecordHeaders(), change));
    }

    private static void add(final String what, final byte[] bytes) {
        LINES.add(what + "\t" + HexFormat.of().formatHex(bytes));
    }
}
