// Package config reads the YAML file of an autoscaler and opens what it names:
// sources, target, state and queues.
//
//	c, err := config.Load("autoscale.yaml")
//	parts, err := c.Open(ctx, config.AllParts, nil)
//	defer parts.Close(ctx)
//	err = parts.Run(ctx)
//
// # The file
//
// These are all keys. Where a key has a default, it is shown:
//
//	name: orders                      # the resource; default: the file's name without its extension
//	every: 1m                         # how often metrics are read
//	metrics:                          # names that you choose, each with one source
//	  backlog:
//	    servicebus:                   # active messages of a queue, or of a topic's subscription
//	      connection: ${SERVICEBUS_CONNECTION_STRING}
//	      namespace: contoso.servicebus.windows.net   # instead of connection, with
//	      credential: default         # azidentity.NewDefaultAzureCredential
//	      topic: orders
//	      subscription: billing       # or queue: orders
//	  behind:
//	    lag:                          # events of a hub that a pipeline has not processed
//	      pipeline: flights.yaml      # or, for other consumers than Sluice's:
//	      source: {eventhub: …}       # or kafka: …, with start: …, as in pipeline files
//	      checkpoints:                # one of
//	        azure_blob:               # of the Azure SDKs' event processors and Azure Functions
//	          container: https://ACCOUNT.blob.core.windows.net/CONTAINER
//	          connection: ${STORAGE_CONNECTION_STRING}   # or credential: default, or a signature in the URL
//	          prefix: …               # of the blobs' names
//	        kafka_group: billing      # the committed offsets of a consumer group of Kafka
//	  open:
//	    sql:
//	      database: ${DATABASE_URL}   # sqlite:PATH, or the URL of a database, as in pipeline files
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
//	  cpu:
//	    azure_monitor:                # with azidentity.NewDefaultAzureCredential
//	      resource: /subscriptions/…/resourceGroups/…/providers/Microsoft.Web/serverfarms/…
//	      metric: CpuPercentage       # its name in the REST API
//	      aggregation: average        # or minimum, maximum, total, count
//	      window: 1m                  # Azure aggregates over 1m, 5m, 15m, 30m, 1h, 6h, 12h or 24h
//	      filter: EntityName eq 'x'   # one value of each dimension; default: all together
//	      namespace: …                # of the metric; default: the resource's own
//	target:                           # one of
//	  workers:                        # processes on this machine
//	    pipeline: flights.yaml        # sluice run flights.yaml, with partitions: balanced; or command: any program
//	    directory: NAME.workers       # their process ids, locks and output
//	    grace: 45s                    # time for a graceful stop
//	  command:                        # by sh -c
//	    count: cat instances          # prints the number of instances
//	    scale: echo $SLUICE_INSTANCES > instances
//	    timeout: 1m
//	  webhook: {url: "http://scaler/orders", authorization: …}
//	  kubernetes: {kind: Deployment, name: …, namespace: …, kubeconfig: …, context: …}
//	  appservice: {subscription: …, resource_group: …, plan: …}
//	  containerapp: {subscription: …, resource_group: …, app: …, replicas: exact}
//	                                  # or min, max: the bound within which Azure's own rules scale
//	  sqldatabase: {subscription: …, resource_group: …, server: …, database: …, objectives: [S0, S1, S2]}
//	                                  # the smallest first: 1 instance is S0, 3 are S2
//	  cosmos: {endpoint: …, key: …, database: …, container: …, unit: 1000}
//	                                  # instead of endpoint and key, through Azure Resource Manager:
//	                                  # credential: default, subscription: …, resource_group: …, account: …
//	rule:                             # the published rule:
//	  upper: 500                      # average above it: one instance more
//	  lower: 300                      # maximum below it: one instance fewer
//	  metric: backlog                 # needed if there are several
//	                                  # or expressions:
//	  up: avg(backlog, "10m") > 500
//	  down: max(backlog, "10m") < 300
//	  step: 1                         # an expression, or {up: …, down: …}
//	                                  # or the number of instances:
//	  target: ceil(backlog / 1000)
//	                                  # and with any rule:
//	  min: 1
//	  max: 10
//	  cooldown: 10m                   # or {up: …, down: …}; 0s: none
//	  points: 5                       # number of values that a metric needs to count
//	  window: 10m                     # how long values are kept
//	  stale: 3m                       # a metric whose newest value is older does not count
//	state:                            # one of
//	  sqlite: NAME.autoscale.db
//	  postgres: ${DATABASE_URL}       # the tables sluice_autoscale_…; as in pipeline files, also with credential=default
//	  azure:
//	    connection: ${STORAGE_CONNECTION_STRING}
//	    account: contoso              # instead of connection, with
//	    credential: default
//	    table: Scaling
//	    prefix: NAME-                 # of the queues' names; the default is different for each resource
//	    published_queues: true        # queues metrics, actions and reports: only one resource of the account can
//	keep: 720h                        # how long decisions are kept
//
// Package expression documents the language of expressions. In expressions,
// commands and queries, ${NAME} has no special meaning; in all other values it is
// an environment variable, as in pipelines. A file that holds a key or password is
// refused.
//
// Several files, each with a resource of its own, can run in one process: see [LoadGroup].
// They can share a state, and so can processes.
//
// With state azure, parts that run as separate processes are joined by queues in the same
// account; with postgres, by queues in the same database; with sqlite, by queues in the same
// file, on one machine.
package config
