package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// What the proxy says, byte for byte as PostgreSQL's protocol has it.
func TestAppend_Bytes(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"Query", wire.AppendQuery(nil, "SELECT 1"), "Q\x00\x00\x00\x0dSELECT 1\x00"},
		{"Parse", wire.AppendParse(nil, "n", "text"), "P\x00\x00\x00\x0dn\x00text\x00\x00\x00"},
		{"Bind", wire.AppendBind(nil, "p", "s"), "B\x00\x00\x00\x0ep\x00s\x00\x00\x00\x00\x00\x00\x00"},
		{"Execute", wire.AppendExecute(nil, "p"), "E\x00\x00\x00\x0ap\x00\x00\x00\x00\x00"},
		{"Close", wire.AppendClose(nil, 'S', "s"), "C\x00\x00\x00\x07Ss\x00"},
		{"Sync", wire.AppendSync(nil), "S\x00\x00\x00\x04"},
		{"Terminate", wire.AppendTerminate(nil), "X\x00\x00\x00\x04"},
		{"Ready", wire.AppendReady(nil, wire.StatusBlock), "Z\x00\x00\x00\x05T"},
		{"Error", wire.AppendError(nil, wire.Report{Severity: "ERROR", Code: "LF001", Message: "m", Detail: "d", Hint: "h"}),
			"E\x00\x00\x00\x23SERROR\x00VERROR\x00CLF001\x00Mm\x00Dd\x00Hh\x00\x00"},
		{"Notice without detail", wire.AppendNotice(nil, wire.Report{Severity: "WARNING", Code: "01000", Message: "m"}),
			"N\x00\x00\x00\x21SWARNING\x00VWARNING\x00C01000\x00Mm\x00\x00"},
		{"Frame", wire.Frame([]byte("before"), 'D', []byte("a"), nil, []byte("bc")), "beforeD\x00\x00\x00\x07abc"},
		{"appended", wire.AppendSync([]byte("before")), "beforeS\x00\x00\x00\x04"},
	} {
		if got := string(c.got); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReadReport_RoundTrip(t *testing.T) {
	want := wire.Report{Severity: "ERROR", Code: "LF001", Message: "stale_token: k", Detail: "d", Hint: "h"}
	for name, message := range map[string][]byte{"error": wire.AppendError(nil, want), "notice": wire.AppendNotice(nil, want)} {
		got, err := wire.ReadReport(message[wire.HeaderLen:])
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestReadReport_Severity(t *testing.T) {
	for body, want := range map[string]string{
		"SFEHLER\x00VERROR\x00C22012\x00Mx\x00\x00": "ERROR",
		"SFATAL\x00C57P01\x00Mx\x00\x00":            "FATAL",
	} {
		if got, err := wire.ReadReport([]byte(body)); err != nil || got.Severity != want {
			t.Errorf("%q: got %q, %v, want %q", body, got.Severity, err, want)
		}
	}
	for _, body := range []string{"", "S", "SERROR", "SERROR\x00"} {
		if _, err := wire.ReadReport([]byte(body)); err == nil {
			t.Errorf("%q: got no error", body)
		}
	}
}

const report = "SERROR\x00VERROR\x00C42703\x00Mcolumn\x00P17\x00p3\x00qSELECT x\x00WPL/pgSQL function\x00Fparse.c\x00L3722\x00Rerror\x00\x00"

func TestWithPosition(t *testing.T) {
	plus := func(n int) func(int) int { return func(pos int) int { return pos + n } }
	for _, c := range []struct {
		name, body string
		to         func(int) int
		want       string
	}{
		{"back", report, plus(-7), "SERROR\x00VERROR\x00C42703\x00Mcolumn\x00P10\x00p3\x00qSELECT x\x00WPL/pgSQL function\x00Fparse.c\x00L3722\x00Rerror\x00\x00"},
		{"inside an insertion", report, plus(-17), "SERROR\x00VERROR\x00C42703\x00Mcolumn\x00p3\x00qSELECT x\x00WPL/pgSQL function\x00Fparse.c\x00L3722\x00Rerror\x00\x00"},
		{"none", "SERROR\x00Mx\x00\x00", plus(-7), "SERROR\x00Mx\x00\x00"},
		{"not a number", "Px7\x00\x00", plus(-7), "Px7\x00\x00"},
		{"empty", "P\x00\x00", plus(-7), "P\x00\x00"},
		{"empty values stay", "M\x00D\x00\x00", plus(0), "M\x00D\x00\x00"},
		{"no field", "\x00", plus(0), "\x00"},
		{"empty body", "", plus(0), ""},
		{"not terminated", "SERROR\x00P17\x00", plus(-7), "SERROR\x00P17\x00"},
		{"cut in a field", "SERROR\x00P17", plus(-7), "SERROR\x00P17"},
		{"cut after a type", "SERROR\x00P17\x00M", plus(-7), "SERROR\x00P17\x00M"},
		{"bytes after the end", "P17\x00\x00x", plus(-7), "P17\x00\x00x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := wire.WithPosition([]byte("before"), wire.ErrorResponse, []byte(c.body), c.to)
			want := wire.Frame([]byte("before"), wire.ErrorResponse, []byte(c.want))
			if !bytes.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestWithoutContext(t *testing.T) {
	for body, want := range map[string]string{
		report:                   "SERROR\x00VERROR\x00C42703\x00Mcolumn\x00Fparse.c\x00L3722\x00Rerror\x00\x00",
		"W\x00\x00":              "\x00",
		"Wwhere":                 "Wwhere",
		"MW\x00DP\x00Hp\x00\x00": "MW\x00DP\x00Hp\x00\x00",
	} {
		if got, want := wire.WithoutContext(nil, []byte(body)), wire.Frame(nil, wire.ErrorResponse, []byte(want)); !bytes.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", body, got, want)
		}
	}
}

func TestReadRow(t *testing.T) {
	row := func(columns int, rest string) []byte {
		return append(binary.BigEndian.AppendUint16(nil, uint16(columns)), rest...)
	}
	for _, c := range []struct {
		name string
		body []byte
		want []string
		ok   bool
	}{
		{"text, empty and NULL", row(3, "\x00\x00\x00\x02ab\x00\x00\x00\x00\xff\xff\xff\xff"), []string{"ab", "", ""}, true},
		{"no columns", row(0, ""), []string{}, true},
		{"empty", nil, nil, false},
		{"fewer columns than claimed", row(3, "\x00\x00\x00\x02ab"), nil, false},
		{"a column cut short", row(1, "\x00\x00\x00\x09ab"), nil, false},
		{"a column of 1 GB", row(1, "\x3f\xff\xff\xffab"), nil, false},
		{"a column of less than NULL", row(1, "\xff\xff\xff\xfeab"), nil, false},
		{"the least length", row(1, "\x80\x00\x00\x00ab"), nil, false},
		{"no length at all", row(2, "\x00\x00\x00\x04abcd"), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := wire.ReadRow(c.body)
			if (err == nil) != c.ok || !cmp.Equal(got, c.want) {
				t.Errorf("got %q, %v, want %q, ok %v", got, err, c.want, c.ok)
			}
		})
	}
}

func TestReadStartup(t *testing.T) {
	for _, c := range []struct {
		name, rest string
		want       map[string]string
	}{
		{"usual", "user\x00me\x00database\x00db\x00\x00", map[string]string{"user": "me", "database": "db"}},
		{"no parameters", "\x00", map[string]string{}},
		{"empty value", "user\x00me\x00options\x00\x00\x00", map[string]string{"user": "me", "options": ""}},
		{"the last one counts", "user\x00a\x00user\x00b\x00\x00", map[string]string{"user": "b"}},
		{"no terminator", "user\x00me\x00", nil},
		{"nothing at all", "", nil},
		{"name cut short", "user\x00me\x00data", nil},
		{"name without a value", "user\x00me\x00database\x00", nil},
		{"value cut short", "user\x00me", nil},
		{"bytes after the terminator", "user\x00me\x00\x00x", nil},
		{"two terminators", "user\x00me\x00\x00\x00", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := wire.ReadStartup(append([]byte("\x00\x00\x00\x00\x00\x03\x00\x00"), c.rest...))
			if !cmp.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if want := c.want == nil; errors.Is(err, wire.ErrLength) != want || (err != nil) != want {
				t.Errorf("got error %v, want one: %v", err, want)
			}
		})
	}
	for n := range 8 {
		if _, err := wire.ReadStartup(make([]byte, n)); !errors.Is(err, wire.ErrLength) {
			t.Errorf("packet of %d bytes: got %v, want %v", n, err, wire.ErrLength)
		}
	}
}

func TestClientLimit(t *testing.T) {
	want := map[byte]int{}
	for _, c := range []byte("QPBFd") {
		want[c] = wire.MaxLength
	}
	for _, c := range []byte("CDEHSXcf") {
		want[c] = wire.MaxSmallLength
	}
	for c := range 256 {
		if got := wire.ClientLimit(byte(c)); got != want[byte(c)] {
			t.Errorf("type %q: got %d, want %d", byte(c), got, want[byte(c)])
		}
	}
}

func TestCString(t *testing.T) {
	for in, want := range map[string][3]string{
		"":           {"", "", "no"},
		"abc":        {"", "abc", "no"},
		"\x00":       {"", "", "yes"},
		"a\x00b\x00": {"a", "b\x00", "yes"},
	} {
		text, rest, ok := wire.CString([]byte(in))
		got := [3]string{string(text), string(rest), map[bool]string{true: "yes", false: "no"}[ok]}
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
