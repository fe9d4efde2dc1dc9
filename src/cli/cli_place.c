/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides which part of a job this launcher starts: all of it, or with torchrun's flags the part of one of several
 * hosts.
 */
#include "cli/cli.h"
#include "cli/cli_run.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { RANKS_MOST = 65536, PORT_USUAL = 29500 }; /* torchrun's port */

/* Returns a given flag that only --hosts uses, or NULL. */
static const char *flag_for_hosts(const struct run_values *values)
{
    if (strcmp(values->ssh, cli_find_flag(&cli_run_page, "ssh")->row.initial) != 0) return "--ssh";
    if (values->remote_tutti[0] != '\0') return "--remote-tutti";
    return values->env[0] != '\0' ? "--env" : NULL;
}

static int check_hosts_flags(const struct run_values *values)
{
    bool hosts = values->hosts[0] != '\0', nodes = values->nnodes > 1;
    if (values->ranks != 0 && values->nproc_per_node != 0)
        return cli_refuse("run", "-n and --nproc-per-node mean the same; give one of them");
    if (hosts && (nodes || values->node_rank >= 0))
        return cli_refuse("run",
                          "--hosts starts all hosts by itself; --nnodes and --node-rank are for starting each by "
                          "hand");
    if (!hosts && flag_for_hosts(values) != NULL)
        return cli_refuse("run", "%s needs --hosts: which hosts to start the job on", flag_for_hosts(values));
    if (!hosts && values->nnodes == 0 && (values->master_addr[0] != '\0' || values->master_port != 0))
        return cli_refuse("run", "%s needs --nnodes or --hosts: how many hosts are there?",
                          values->master_addr[0] != '\0' ? "--master-addr" : "--master-port");
    if (!hosts && values->nnodes == 0 && values->node_rank > 0)
        return cli_refuse("run", "--node-rank %lld needs --nnodes: how many hosts are there?",
                          (long long)values->node_rank);
    return CLI_GO_ON;
}

/* Checks an address, which may be in brackets. */
static int check_address(const char *host)
{
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM};
    char bare[256];
    size_t length = strlen(host);
    bool bracketed = length > 2 && length < sizeof bare && host[0] == '[' && host[length - 1] == ']';
    (void)snprintf(bare, sizeof bare, "%.*s", bracketed ? (int)length - 2 : (int)length, host + bracketed);
    int why = getaddrinfo(bare, NULL, &hints, &list);
    if (why != 0)
        return cli_refuse("run", "--master-addr: the host '%s' does not resolve: %s", host, gai_strerror(why));
    freeaddrinfo(list);
    return CLI_GO_ON;
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0';
}

static int check_nodes(const struct run_values *values)
{
    int nodes = (int)values->nnodes, last = nodes + (int)values->spare - 1;
    if (values->node_rank > last)
        return cli_refuse("run", "--node-rank %lld: with --nnodes %d hosts go from 0 to %d%s",
                          (long long)values->node_rank, nodes, last, values->spare > 0 ? ", with --spare" : "");
    if (nodes == 1) return CLI_GO_ON; /* no other host to meet */
    if (values->node_rank < 0)
        return cli_refuse("run", "--nnodes %d needs --node-rank: which of them this host is, from 0 to %d", nodes,
                          last);
    if (values->master_addr[0] == '\0')
        return cli_refuse("run", "--nnodes %d needs --master-addr: the host of --node-rank 0", nodes);
    if (!is_set("TUTTI_KEY_FILE") && !is_set("TUTTI_KEY"))
        return cli_refuse("run", "a job on several hosts needs a key: make one with `tutti key FILE`, copy it to every "
                                 "host, and give --key-file FILE");
    return check_address(values->master_addr);
}

int place_read(const struct run_values *values, struct launch *launch)
{
    struct place *place = &launch->place;
    int status = check_hosts_flags(values);
    if (status != CLI_GO_ON) return status;
    launch->size = (int)(values->ranks + values->nproc_per_node); /* at most one of them is given; the other is 0 */
    if (launch->size == 0) launch->size = 1;
    if (launch->remote) return CLI_GO_ON; /* the other launcher has set the place */
    *place = (struct place){.world = launch->size, .nodes = 1};
    if (values->nnodes > 0) status = check_nodes(values);
    if (status != CLI_GO_ON || values->nnodes <= 1) return status;
    if (launch->size > RANKS_MOST / values->nnodes)
        return cli_refuse("run", "%lld hosts of %d ranks: a job has %d ranks at most", (long long)values->nnodes,
                          launch->size, RANKS_MOST);
    place->node = (int)values->node_rank;
    place->nodes = (int)values->nnodes;
    place->first = place->node * launch->size;
    place->world = place->nodes * launch->size;
    place->master_addr = values->master_addr;
    place->master_port = values->master_port != 0 ? (int)values->master_port : PORT_USUAL;
    (void)snprintf(launch->job, sizeof launch->job, "run-%d-%.100s", place->master_port, place->master_addr);
    return CLI_GO_ON;
}
