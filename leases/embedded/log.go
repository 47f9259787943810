package embedded

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// tooEarly is what etcd says when it leads before it has written its first
// term to its database, which a single node does now and then. It tries again
// by itself.
const tooEarly = "failed to update storage version"

// A logCore writes what etcd has to say, but for tooEarly.
type logCore struct{ zapcore.Core }

func newLogCore(w io.Writer, level zap.AtomicLevel) zapcore.Core {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339TimeEncoder
	sink := zapcore.Lock(zapcore.AddSync(w))
	return logCore{zapcore.NewCore(zapcore.NewConsoleEncoder(config), sink, level)}
}

// With keeps the filter on loggers that etcd derives.
func (c logCore) With(fields []zapcore.Field) zapcore.Core { return logCore{c.Core.With(fields)} }

func (c logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.Message == tooEarly {
		return checked
	}
	return c.Core.Check(entry, checked)
}
