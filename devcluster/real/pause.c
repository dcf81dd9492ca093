// The process that holds a pod's namespaces: it reaps orphans and ends when it is told to.
// kubeadm's check before an upgrade runs it with -v as a Job that has to complete.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0) {} }

int main(int count, char **arguments) {
  if (count > 1 && !strcmp(arguments[1], "-v")) { puts("pause of a development cluster"); return 0; }
  struct sigaction ending = {.sa_handler = end}, reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGINT, &ending, 0);
  sigaction(SIGTERM, &ending, 0);
  sigaction(SIGCHLD, &reaping, 0);
  for (;;) pause();
}
