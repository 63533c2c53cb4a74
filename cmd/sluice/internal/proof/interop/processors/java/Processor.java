import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.LoadBalancingStrategy;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.EventContext;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.storage.blob.BlobContainerClientBuilder;
import java.time.Duration;

/**
 * An event processor as azure-messaging-eventhubs has it, which stores a checkpoint after every
 * tenth event of a partition. It prints "handled PARTITION SEQUENCE" for each event, and "stored
 * PARTITION SEQUENCE" for each checkpoint, when it is done. It runs until it is killed.
 *
 * Environment: HUB (connection string of the namespace), STORAGE (of the storage account).
 */
public final class Processor {
    static final int EVERY = 10;

    public static void main(String[] args) throws InterruptedException {
        new EventProcessorClientBuilder().connectionString(System.getenv("HUB"), "flights").consumerGroup(EventHubClientBuilder.DEFAULT_CONSUMER_GROUP_NAME)
            .checkpointStore(new BlobCheckpointStore(new BlobContainerClientBuilder().connectionString(System.getenv("STORAGE")).containerName("checkpoints").buildAsyncClient()))
            .loadBalancingStrategy(LoadBalancingStrategy.GREEDY).loadBalancingUpdateInterval(Duration.ofSeconds(1)).partitionOwnershipExpirationInterval(Duration.ofSeconds(20))
            .initialPartitionEventPosition(partition -> EventPosition.earliest())
            .processEvent(Processor::handle).processError(e -> e.getThrowable().printStackTrace()).buildEventProcessorClient().start();
        Thread.currentThread().join();
    }

    static void handle(EventContext e) {
        try {
            Thread.sleep(5); // its work
        } catch (InterruptedException stopped) {
            throw new IllegalStateException(stopped);
        }
        say("handled", e);
        if ((e.getEventData().getSequenceNumber() + 1) % EVERY == 0) {
            e.updateCheckpoint();
            say("stored", e);
        }
    }

    static synchronized void say(String what, EventContext e) {
        System.out.println(what + " " + e.getPartitionContext().getPartitionId() + " " + e.getEventData().getSequenceNumber());
        System.out.flush();
    }
}
