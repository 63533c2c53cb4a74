import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** What the checks in Java share: each prints a line, may take four minutes, and has its own clients. */
final class Check {
    interface Body {
        void run() throws Exception;
    }

    private static final Deque<AutoCloseable> open = new ArrayDeque<>(); // clients of the check in progress
    private static int checks, failures;

    private Check() {
    }

    static void check(String name, Body body) {
        checks++;
        long began = System.nanoTime();
        Throwable failure = null;
        FutureTask<?> run = new FutureTask<>(() -> {
            body.run();
            return null;
        });
        Thread thread = new Thread(run);
        thread.setDaemon(true); // one that hangs is left behind
        thread.start();
        try {
            run.get(4, TimeUnit.MINUTES);
        } catch (ExecutionException e) {
            failure = e.getCause();
        } catch (TimeoutException | InterruptedException e) {
            failure = new AssertionError("took more than four minutes");
            failure.setStackTrace(thread.getStackTrace());
        }
        while (!open.isEmpty()) {
            try {
                open.pop().close();
            } catch (Exception e) {
                failure = failure == null ? e : failure;
            }
        }
        thread.interrupt();
        System.out.println((failure == null ? "ok   " : "FAIL ") + name + " (" + (System.nanoTime() - began) / 1_000_000 + " ms)");
        if (failure != null) {
            failures++;
            System.out.println(failure);
            for (StackTraceElement at : failure.getStackTrace()) {
                if (at.getClassName().matches("(EventHubs|ServiceBus)(\\$.*)?")) {
                    System.out.println("    at " + at);
                }
            }
        }
    }

    /** Prints the number of checks and ends the program, with 1 if one failed. */
    static void finish() {
        System.out.println(failures == 0 ? "all " + checks + " checks passed" : failures + " of " + checks + " checks failed");
        System.exit(failures == 0 ? 0 : 1);
    }

    /** Closes a client at the end of the check. */
    static synchronized <C extends AutoCloseable> C opened(C client) {
        open.push(client);
        return client;
    }

    static void equal(Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError("got " + got + ", want " + want);
        }
    }

    static void holds(boolean condition, Object what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    /** Waits until a condition is met: the check's deadline bounds it. */
    static void until(Callable<Boolean> met) throws Exception {
        while (!met.call()) {
            Thread.sleep(50);
        }
    }

    /** Runs what must fail with an error of a type whose text contains words. */
    static <E extends Throwable> E refused(Class<E> type, String words, Body body) {
        try {
            body.run();
        } catch (Throwable thrown) {
            for (Throwable e = thrown; e != null; e = e.getCause()) {
                if (type.isInstance(e)) {
                    holds(String.valueOf(e.getMessage()).contains(words), "refused with " + e + ", not: " + words);
                    return type.cast(e);
                }
            }
            throw new AssertionError("refused with " + thrown + ", not with " + type.getSimpleName(), thrown);
        }
        throw new AssertionError("not refused: " + words);
    }

    /** Sends a request to the control endpoint of the emulator. */
    static String control(String path, String body) throws Exception {
        HttpResponse<String> answer = HttpClient.newHttpClient().send(
            HttpRequest.newBuilder(URI.create(System.getenv("CONTROL") + path)).POST(HttpRequest.BodyPublishers.ofString(body)).build(), HttpResponse.BodyHandlers.ofString());
        equal(answer.statusCode(), 200);
        return answer.body();
    }
}
