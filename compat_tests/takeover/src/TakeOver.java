import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;

/**
 * An instance of the application on Kafka Streams: TakeOver SETTINGS INPUTS PARTS PAUSE_US. SETTINGS is a file of its
 * properties. SIGTERM ends it cleanly; as a member that leaves its group, unless SETTINGS says take.over.stay=true.
 */
final class TakeOver {
    private TakeOver() {}

    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        boolean stays = Boolean.parseBoolean((String) settings.remove("take.over.stay"));
        Topics topics = new Topics(arguments[1], settings.getProperty(StreamsConfig.APPLICATION_ID_CONFIG), "",
            Long.parseLong(arguments[3]));
        Topology topology = Parts.topology(List.of(arguments[2].split(",")), topics);
        run(new KafkaStreams(topology, settings), stays);
    }

    private static void run(KafkaStreams streams, boolean stays) {
        streams.setStateListener((now, before) -> System.err.println("client is " + now));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        CloseOptions options = CloseOptions.groupMembershipOperation(
            stays ? GroupMembershipOperation.REMAIN_IN_GROUP : GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(options);
            Runtime.getRuntime().halt(0);
        }));
        streams.start();
    }
}
