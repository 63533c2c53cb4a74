// Package config makes an autoscaler of a YAML file.
//
//	c, err := config.Load("autoscale.yaml")
//	parts, err := c.Open(ctx, config.AllParts, nil)
//	defer parts.Close(ctx)
//	err = parts.Run(ctx)
//
// # The file
//
// All keys there are; the values are the defaults, where there are any:
//
//	name: orders                      # of the resource: the file's name without its extension
//	every: 1m                         # how often metrics are read
//	metrics:                          # names of your own, each with one source
//	  backlog:
//	    servicebus:                   # active messages of a queue, or of a topic's subscription
//	      connection: ${SERVICEBUS_CONNECTION_STRING}
//	      namespace: contoso.servicebus.windows.net   # instead of connection, with
//	      credential: default         # azidentity.NewDefaultAzureCredential
//	      topic: orders
//	      subscription: billing       # or queue: orders
//	  behind:
//	    lag:                          # events of a hub that a pipeline has not done
//	      pipeline: flights.yaml
//	  open:
//	    sql:
//	      database: ${DATABASE_URL}   # sqlite:PATH or postgres://user:${PASSWORD}@host/database
//	      query: SELECT count(*) FROM orders WHERE done IS NULL
//	  requests:
//	    prometheus:
//	      url: http://prometheus:9090
//	      query: sum(rate(http_requests_total[5m]))
//	      authorization: Bearer ${TOKEN}
//	  waiting:
//	    http:
//	      url: http://printer/status
//	      pointer: /queue/waiting     # a JSON pointer into the answer
//	      authorization: Bearer ${TOKEN}
//	target:                           # one of
//	  workers:                        # processes on this machine
//	    pipeline: flights.yaml        # sluice run flights.yaml, with partitions: balanced; or command: any program
//	    directory: NAME.workers       # what is known of them
//	    grace: 45s                    # for one that is to end
//	  command:                        # by sh -c
//	    count: cat instances          # prints how many there are
//	    scale: echo $SLUICE_INSTANCES > instances
//	    timeout: 1m
//	  webhook: {url: "http://scaler/orders", authorization: …}
//	  kubernetes: {kind: Deployment, name: …, namespace: …, kubeconfig: …, context: …}
//	  appservice: {subscription: …, resource_group: …, plan: …}
//	  cosmos: {endpoint: …, key: …, credential: default, database: …, container: …, unit: 1000}
//	rule:                             # the published rule:
//	  upper: 500                      # the average above it: one more
//	  lower: 300                      # the maximum below it: one fewer
//	  metric: backlog                 # which, if there are several
//	                                  # or else expressions:
//	  up: avg(backlog, "10m") > 500
//	  down: max(backlog, "10m") < 300
//	  step: 1                         # an expression, or {up: …, down: …}
//	                                  # or else how many there should be:
//	  target: ceil(backlog / 1000)
//	                                  # and with any of them:
//	  min: 1
//	  max: 10
//	  cooldown: 10m                   # or {up: …, down: …}; 0s: none
//	  points: 5                       # values that a metric needs to count
//	  window: 10m                     # how long values are kept
//	  stale: 3m                       # a metric without a value for so long does not count
//	state:                            # one of
//	  sqlite: NAME.autoscale.db
//	  azure: {connection: …, account: …, credential: default, table: Scaling}
//	                                  # prefix: of the queues' names, where several files share an account
//	keep: 720h                        # records of decisions
//
// The language of expressions is told by package expression. In them, and in
// commands and queries, ${NAME} is nothing special; in all other values it is
// an environment variable, as in pipelines. Keys and passwords in the file
// itself are refused.
//
// With azure, parts that run apart are joined by queues in the same account;
// with sqlite, by queues in the same file, on one machine.
package config
