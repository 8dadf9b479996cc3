package labels

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pointsman-dev/pointsman/scorer/features"
)

// both forms of the same data: three tasks, the second lacking a label.
const (
	jsonLines = `
{"task":"one","group":"law","labels":{"small":0,"large":1}}
{"task":"two","group":"law","labels":{"small":null,"large":true}}

{"task":"three, \"quoted\"\nand long","labels":{"large":0,"small":1}}
{"task":"one","group":"law","labels":{"small":0}}
`
	asCSV = "\ufeffquestion,output_tokens,model,isCorrect,group\n" +
		"one,12,large,True,law\n" +
		"one,15,small,False,law\n" +
		"two,1,large,1,law\n" +
		"two,1,small,,law\n" +
		"\"three, \"\"quoted\"\"\nand long\",9,large,0,\n" +
		"\"three, \"\"quoted\"\"\nand long\",9,small,1.0,\n"
)

func TestBothForms(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte(jsonLines))
	z.Close()
	for _, c := range []struct {
		name, data string
		lines      [3]int
		repeated   int
	}{
		{"JSON lines", jsonLines, [3]int{2, 3, 5}, 1},
		{"compressed", zipped.String(), [3]int{2, 3, 5}, 1},
		{"CSV", asCSV, [3]int{2, 4, 6}, 1}, // the line of two's missing label says nothing new
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := Read(strings.NewReader(c.data))
			if err != nil {
				t.Fatal(err)
			}
			want := []Example{
				{Task: "one", Group: "law", Labels: []Label{Right, Wrong}},
				{Task: "two", Group: "law", Labels: []Label{Right, Missing}},
				{Task: "three, \"quoted\"\nand long", Labels: []Label{Wrong, Right}},
			}
			for i := range want {
				want[i].Digest, want[i].Line = features.DigestOf(want[i].Task), c.lines[i]
			}
			if diff := cmp.Diff(want, set.Examples); diff != "" {
				t.Errorf("examples (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"large", "small"}, set.Models); diff != "" {
				t.Errorf("models: %s", diff)
			}
			if set.Repeated != c.repeated || len(set.Digest) != len("sha256:")+64 {
				t.Errorf("%d repeated, digest %q", set.Repeated, set.Digest)
			}
		})
	}
}

func TestFaultsHaveLines(t *testing.T) {
	const secret = "private text"
	for _, c := range []struct{ name, data, want string }{
		{"nothing", "", "nothing in it"},
		{"white space", " \n\n", "nothing in it"},
		{
			"labels disagree",
			`{"task":"` + secret + `","labels":{"a":0}}` + "\n" + `{"task":"` + secret + `","labels":{"a":1}}`,
			"line 2 whose task has another label for the same model above (the first on line 1)",
		},
		{
			"several faults at once",
			`{"task":"x","labels":{"a":2}}` + "\n" + `{"labels":{"a":1}}` + "\n" + `{"task":" ","labels":{"a":1}}` + "\n" + `{"task":"x"}` + "\nprivate text\n" + `{"task":"x","labels":{"a":0.5}}`,
			"2 lines (1, 6) with a label that is not 0, 1, true, false or null; 2 lines (2, 3) without a task; line 4 without labels; line 5 that are not an object",
		},
		{"another group", `{"task":"x","group":"g","labels":{"a":1}}` + "\n" + `{"task":"x","group":"h","labels":{"a":1}}`, "line 2 whose task has another group"},
		{"CSV without a column", "question,model\nprivate text,m\n", `no column "isCorrect" in the heading on line 1`},
		{"CSV with a bad label", "question,model,isCorrect\nq,m,maybe\nq,m,1\n", "line 2 with an isCorrect"},
		{"CSV with a short line", "question,model,isCorrect\nq,m,1\nprivate text,m\n", "line 3"},
		{"only blank labels", `{"task":"x","labels":{"":1}}`, "empty model name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.data))
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Error("the message repeats a task")
			}
		})
	}
}

func TestManyFaultsAreCounted(t *testing.T) {
	_, err := Read(strings.NewReader(strings.Repeat(`{"labels":{"a":1}}`+"\n", 1000)))
	if want := "1000 lines (1, 2, 3, 4, 5, 6, 7, 8, …) without a task"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestColumns(t *testing.T) {
	set, err := Read(strings.NewReader(jsonLines))
	if err != nil {
		t.Fatal(err)
	}
	columns, err := set.Columns([]string{"small", "large"})
	if err != nil || columns[0] != 1 || columns[1] != 0 {
		t.Errorf("columns %v, %v", columns, err)
	}
	if _, err := set.Columns([]string{"medium"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("unknown model: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(jsonLines))
	f.Add([]byte(asCSV))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, e := range set.Examples {
			if len(e.Labels) != len(set.Models) || e.Task == "" || e.Line < 1 {
				t.Errorf("example on line %d has %d labels for %d models", e.Line, len(e.Labels), len(set.Models))
			}
		}
	})
}
