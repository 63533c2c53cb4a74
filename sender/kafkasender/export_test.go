package kafkasender

// SetSequence sets the number of a partition's next record.
func SetSequence(t *Transport, partition int, sequence int32) {
	list, err := t.lookUpPartitions(t.requests.Context())
	if err != nil {
		panic(err)
	}
	p := list[partition]
	if p.id, p.epoch, err = t.producerID(t.requests.Context()); err != nil {
		panic(err)
	}
	p.sequence = sequence
}
