package server

import (
	"io"
	"log"
	"os"
	"time"

	"golang.org/x/time/rate"
)

// errorLog limits the lines that it writes in a second. net/http writes one for
// each connection whose handshake fails.
type errorLog struct {
	limit *rate.Limiter
	out   io.Writer
}

func newErrorLog() *log.Logger {
	const each, burst = 100 * time.Millisecond, 10
	return log.New(errorLog{rate.NewLimiter(rate.Every(each), burst), os.Stderr}, "", log.LstdFlags)
}

func (l errorLog) Write(line []byte) (int, error) {
	if !l.limit.Allow() {
		return len(line), nil
	}
	return l.out.Write(line)
}
