package pythonsuites

// Reasons why a test fails.
const (
	rules        = "rules of subscriptions are refused"
	duplicates   = "duplicate detection is refused"
	forwarding   = "forwarding is refused"
	entityRights = "authorization rules of an entity are refused"
	partitioned  = "partitioned entities are refused"
	repository   = "it compares files of the Azure SDK's repository, which the published source has not"
	replaced     = "the test replaces a method of the client by one that lacks the parameter await_outcome"
	deadline     = "the client gives up after the 5 seconds of the call, and the test expects the service's 65"
	decimals     = "the client can't decode the decimal that it encoded itself"
	renewals     = "300 locks of 55 seconds are renewed one at a time: a busy machine is too slow"
	reconnected  = "the client reconnected within five minutes on a busy machine; the cause is not known"
	lock         = "the lock of the session, of 10 seconds, ends while the test waits for 10 seconds"
)

// managementExpected are the tests of azure-servicebus' administration client that fail.
var managementExpected = map[string]string{
	"test_mgmt_rules::test_mgmt_rule_create":                                      rules,
	"test_mgmt_rules::test_mgmt_rule_create_duplicate":                            rules,
	"test_mgmt_rules::test_mgmt_rule_list_and_delete":                             rules,
	"test_mgmt_rules::test_mgmt_rule_update_dict_error":                           rules,
	"test_mgmt_rules::test_mgmt_rule_update_dict_success":                         rules,
	"test_mgmt_rules::test_mgmt_rule_update_invalid":                              rules,
	"test_mgmt_rules::test_mgmt_rule_update_success":                              rules,
	"test_mgmt_rules_async::test_async_mgmt_rule_create":                          rules,
	"test_mgmt_rules_async::test_async_mgmt_rule_create_duplicate":                rules,
	"test_mgmt_rules_async::test_async_mgmt_rule_list_and_delete":                 rules,
	"test_mgmt_rules_async::test_async_mgmt_rule_update_invalid":                  rules,
	"test_mgmt_rules_async::test_async_mgmt_rule_update_success":                  rules,
	"test_mgmt_rules_async::test_mgmt_rule_async_update_dict_error":               rules,
	"test_mgmt_rules_async::test_mgmt_rule_async_update_dict_success":             rules,
	"test_topic_filter_counts_live::test_topic_filter_counts_live":                rules,
	"test_mgmt_queues::test_mgmt_queue_create_with_queue_description":             duplicates,
	"test_mgmt_queues::test_mgmt_queue_update_dict_success":                       duplicates,
	"test_mgmt_queues_async::test_async_mgmt_queue_create_with_queue_description": duplicates,
	"test_mgmt_queues_async::test_mgmt_queue_async_update_dict_success":           duplicates,
	"test_mgmt_topics::test_mgmt_topic_create_with_topic_description":             duplicates,
	"test_mgmt_topics::test_mgmt_topic_update_dict_success":                       duplicates,
	"test_mgmt_topics::test_mgmt_topic_update_success":                            duplicates,
	"test_mgmt_topics_async::test_async_mgmt_topic_create_with_topic_description": duplicates,
	"test_mgmt_topics_async::test_mgmt_topic_async_update_dict_success":           duplicates,
	"test_mgmt_queues_async::test_async_mgmt_queue_update_success":                forwarding,
	"test_mgmt_subscriptions::test_mgmt_sub_create_w_fwd_to":                      forwarding,
	"test_mgmt_subscriptions::test_mgmt_sub_update_dict_success":                  forwarding,
	"test_mgmt_subscriptions::test_mgmt_subscription_update_success":              forwarding,
	"test_mgmt_subscriptions_async::test_async_mgmt_sub_create_w_fwd_to":          forwarding,
	"test_mgmt_subscriptions_async::test_async_mgmt_subscription_update_success":  forwarding,
	"test_mgmt_subscriptions_async::test_mgmt_sub_async_update_dict_success":      forwarding,
	"test_mgmt_queues::test_mgmt_queue_update_success":                            entityRights,
	"test_mgmt_topics_async::test_async_mgmt_topic_update_success":                entityRights,
}

// serviceBusExpected are the other tests of azure-servicebus that fail.
var serviceBusExpected = map[string]string{
	"test_queues::test_queue_message_duplicate_detection[pyamqp]":                                               duplicates,
	"test_queues_async::test_async_queue_message_duplicate_detection[pyamqp]":                                   duplicates,
	"test_sessions::test_session_partition_batch[pyamqp]":                                                       partitioned,
	"test_sessions_async::test_async_session_partition_batch[pyamqp]":                                           partitioned,
	"test_pyamqp_decode::test_pyamqp_copies_are_byte_identical[_decode.py]":                                     repository,
	"test_pyamqp_decode::test_pyamqp_copies_are_byte_identical[_encode.py]":                                     repository,
	"test_pyamqp_decode::test_pyamqp_copies_are_byte_identical[performatives.py]":                               repository,
	"test_queues::test_queue_operation_negative[pyamqp]":                                                        replaced,
	"test_queues_async::test_async_queue_operation_negative[pyamqp]":                                            replaced,
	"test_sessions::test_next_available_session_timeout_value[pyamqp]":                                          deadline,
	"test_sessions_async::test_async_next_available_session_timeout_value[pyamqp]":                              deadline,
	"test_sessions::test_session_by_queue_client_conn_str_receive_handler_receiveanddelete[pyamqp]":             lock,
	"test_sessions_async::test_async_session_by_queue_client_conn_str_receive_handler_receiveanddelete[pyamqp]": lock,
	"test_message::test_message_property[pyamqp]":                                                               decimals,
	"test_queues::test_queue_receive_handler_with_autolockrenew_many_msgs[pyamqp]":                              renewals,
	"test_queues_async::test_queue_receive_keep_conn_alive_async[pyamqp]":                                       reconnected,
}

// serviceBusSometimes are those that depend on time, and pass on some machines.
var serviceBusSometimes = []string{
	"test_queues_async::test_queue_receive_keep_conn_alive_async[pyamqp]",
	"test_queues::test_queue_receive_handler_with_autolockrenew_many_msgs[pyamqp]",
	"test_sessions::test_session_by_queue_client_conn_str_receive_handler_receiveanddelete[pyamqp]",
	"test_sessions_async::test_async_session_by_queue_client_conn_str_receive_handler_receiveanddelete[pyamqp]",
}
