package amqp

import "time"

func (c *Conn) wakeWriter() {
	select {
	case c.writerWake <- struct{}{}:
	default:
	}
}

// push queues a frame. A frame larger than the client's max-frame-size ends the connection. c.mu
// is held.
func (c *Conn) push(channel uint16, p performative) {
	if c.outputClosed {
		return
	}
	b, at := beginFrame(c.out, frameAMQP, channel)
	b = endFrame(p.encode(b), at)
	if size := len(b) - at; size > c.peerMaxFrame {
		c.out = b[:at]
		c.failLocally(Errorf(CondFrameSizeTooSmall, "an answer needs a frame of %d bytes, more than the max-frame-size", size))
		return
	}
	c.out = b
	c.wakeWriter()
}

// writeLoop writes queued frames until outputComplete is set and all are written. All frames
// queued during one write are written by the next.
func (c *Conn) writeLoop() {
	var spare []byte
	heartbeat := time.NewTimer(0)
	heartbeat.Stop()
	defer heartbeat.Stop()
	for {
		c.mu.Lock()
		buf := c.out
		c.out = spare[:0]
		complete, interval := c.outputComplete, c.heartbeat
		waiters := c.waitingLinks
		c.waitingLinks = nil
		c.mu.Unlock()
		spare = buf
		for _, l := range waiters {
			l.wakeUp()
		}
		select {
		case c.outputTaken <- struct{}{}:
		default:
		}
		if len(buf) == 0 {
			if complete {
				return
			}
			if interval > 0 {
				heartbeat.Reset(interval)
			}
			select {
			case <-c.writerWake:
				heartbeat.Stop()
				continue
			case <-heartbeat.C:
				buf = []byte{0, 0, 0, frameHeaderSize, 2, frameAMQP, 0, 0}
			}
		}
		limit := c.cfg.WriteTimeout
		if !c.trusted.Load() {
			limit = min(limit, untrustedWrite)
		}
		_ = c.net.SetWriteDeadline(time.Now().Add(limit))
		n, err := c.net.Write(buf)
		c.srv.sent.Add(int64(n))
		if err != nil {
			c.drop()
			return
		}
		if cap(spare) > c.trustedOr(8*highWater, 8*untrustedOutput) {
			spare = nil
		}
	}
}

func (c *Conn) pushOpen() {
	c.push(0, &open{
		containerID: c.cfg.ContainerID, maxFrameSize: uint32(c.cfg.MaxFrameSize), channelMax: uint16(c.cfg.MaxSessions - 1),
		idleTimeOut: uint32(c.cfg.IdleTimeout.Milliseconds() / 2),
		properties:  Map{{Symbol("product"), "Sluice"}},
	})
}
