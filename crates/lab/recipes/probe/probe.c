/* The only program in the images of the lab, so that pods need no registry.
 *   probe sleep               does nothing until told to stop: the sandbox of a pod
 *   probe serve               answers its host name to whoever connects to TCP 8080
 *   probe connect IP [PORT]   connects, prints the answer; exit status 1 if there is none within five seconds */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEFAULT_PORT = 8080, CONNECT_DEADLINE_SECONDS = 5 };

/* As process 1 of its namespace a program without handlers would ignore SIGTERM, and every pod would take 30 s to end. */
static void stop(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, NULL, WNOHANG) > 0); }
static void late(int signal) { (void)signal; static const char text[] = "probe: no answer in time\n";
                               if (write(2, text, sizeof text - 1)) {} _exit(1); }

static int fail(const char *what) { fprintf(stderr, "probe: "); perror(what); return 1; }

static int serve(void)
{
    int one = 1, zero = 0, listener = socket(AF_INET6, SOCK_STREAM, 0);
    if (listener >= 0) {
        struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(DEFAULT_PORT), .sin6_addr = in6addr_any };
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
        if (bind(listener, (struct sockaddr *)&any, sizeof any)) { close(listener); listener = -1; }
    }
    if (listener < 0) { /* a kernel or a pod without IPv6 */
        struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(DEFAULT_PORT) };
        listener = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(listener, (struct sockaddr *)&any, sizeof any)) return fail("bind");
    }
    if (listen(listener, 64)) return fail("listen");
    char name[256] = "";
    gethostname(name, sizeof name - 2);
    strcat(name, "\n");
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0) continue;
        if (write(client, name, strlen(name)) < 0) perror("write");
        close(client);
    }
}

static int answer_of(struct sockaddr *address, socklen_t length)
{
    char text[256];
    int connection = socket(address->sa_family, SOCK_STREAM, 0);
    signal(SIGALRM, late);
    alarm(CONNECT_DEADLINE_SECONDS);
    if (connection < 0 || connect(connection, address, length)) return fail("connect");
    ssize_t got = read(connection, text, sizeof text);
    if (got <= 0) return fail("read");
    return fwrite(text, 1, (size_t)got, stdout) == (size_t)got ? 0 : 1;
}

static int probe_connect(const char *ip, int port)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((unsigned short)port) };
    if (inet_pton(AF_INET, ip, &v4.sin_addr) == 1) return answer_of((struct sockaddr *)&v4, sizeof v4);
    if (inet_pton(AF_INET6, ip, &v6.sin6_addr) == 1) return answer_of((struct sockaddr *)&v6, sizeof v6);
    fprintf(stderr, "probe: '%s' is no IP address\n", ip);
    return 2;
}

int main(int count, char **words)
{
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    if (count >= 3 && !strcmp(words[1], "connect")) return probe_connect(words[2], count > 3 ? atoi(words[3]) : DEFAULT_PORT);
    signal(SIGCHLD, reap);
    if (count == 2 && !strcmp(words[1], "serve")) return serve();
    if (count == 2 && !strcmp(words[1], "sleep")) for (;;) pause();
    fprintf(stderr, "usage: probe sleep | serve | connect IP [PORT]\n");
    return 2;
}
