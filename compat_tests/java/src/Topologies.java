import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Every topology by name. One that topologies.py doesn't have is listed as not there yet. */
final class Topologies {
    static final Serde<String> TEXT = Serdes.String();
    static final Serde<Long> LONG = Serdes.Long();

    private static final Map<String, Consumer<StreamsBuilder>> PROGRAMS = new LinkedHashMap<>();
    private static final Map<String, Supplier<Topology>> PLAIN = new LinkedHashMap<>();

    static {
        OfStreams.add();
        OfTables.add();
        OfProcessors.add();
        OfStores.add();
        OfWindows.add();
        OfCogroup.add();
        OfSuppress.add();
        OfStreamJoins.add();
        OfTableJoins.add();
        OfOptimization.add();
        OfVersioned.add();
        OfForeignKeys.add();
        OfGlobals.add();
        OfChains.add();
        OfHeaders.add();
        OfGlobalStores.add();
    }

    private Topologies() {}

    /** A topology of the DSL. */
    static void dsl(String name, Consumer<StreamsBuilder> program) {
        PROGRAMS.put(name, program);
    }

    /** A topology of the Processor API. */
    static void api(String name, Supplier<Topology> program) {
        PLAIN.put(name, program);
    }

    /** A topology by another name too: names beginning with `headers_` run under dsl.store.format=HEADERS. */
    static void again(String name, String other) {
        PROGRAMS.put(name, PROGRAMS.get(other));
    }

    static Set<String> names() {
        Set<String> names = new LinkedHashSet<>(PROGRAMS.keySet());
        names.addAll(PLAIN.keySet());
        return names;
    }

    /** A new topology each time; a name may be a plan, as text. `settings`: those of the build, such as topology.optimization. */
    static Topology build(String name, Properties settings) {
        if (PLAIN.containsKey(name)) {
            return PLAIN.get(name).get();
        }
        if (!PROGRAMS.containsKey(name) && !name.startsWith("{")) {
            throw new IllegalArgumentException("there is no topology " + name);
        }
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(settings)));
        PROGRAMS.getOrDefault(name, plan -> Plans.add(plan, name)).accept(builder);
        return builder.build(settings);
    }

    static Produced<String, Long> longs() {
        return Produced.with(TEXT, LONG);
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> texts(String store) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(store)
            .withKeySerde(TEXT).withValueSerde(TEXT);
    }
}
