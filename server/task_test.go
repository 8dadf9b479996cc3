package server

import (
	"strings"
	"testing"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

func TestTakingTheTask(t *testing.T) {
	user := func(texts ...string) Message { return Message{Role: SpeakerUser, Texts: texts} }
	model := func(texts ...string) Message { return Message{Role: SpeakerAssistant, Texts: texts} }
	other := func(texts ...string) Message { return Message{Role: SpeakerOther, Texts: texts} }
	talk := func(messages ...Message) Input { return Input{IsConversation: true, Conversation: messages} }
	const (
		enveloped = "You are an agent.\n\nTask Description:\nrepair the package\n\nCurrent terminal state:\n$ ls"
		noTask    = "Task Description:\n\n\nCurrent terminal state:\n$"
	)
	for _, c := range []struct {
		name     string
		from     TaskFrom
		terminus bool
		in       Input
		want     string
		reason   pointsmanv1.FallbackReason
	}{
		{name: "a task is taken as it is", in: Input{Task: "  two  words\n"}, want: "  two  words\n"},
		{name: "a blank task is a task", in: Input{Task: " "}, want: " "},
		{name: "no task", in: Input{}, reason: reasonNoTaskText},
		{name: "a task is not unwrapped", terminus: true, in: Input{Task: enveloped}, want: enveloped},
		{name: "the longest task", in: Input{Task: strings.Repeat("x", 1000)}, want: strings.Repeat("x", 1000)},
		{name: "a longer task", in: Input{Task: strings.Repeat("x", 1001)}, reason: reasonTaskTooLarge},

		{name: "first user: the first", in: talk(other("be brief"), user("one"), model("1"), user("two")), want: "one"},
		{name: "first user: one with text", in: talk(user(), user(""), user("two")), want: "two"},
		{name: "first user: parts are joined without a separator", in: talk(user("a", "b")), want: "ab"},
		{name: "first user: blank text is text", in: talk(user(" "), user("two")), want: " "},
		{name: "first user: beyond an answer", in: talk(user(), model("what?"), user("two")), want: "two"},
		{name: "first user: none", in: talk(other("be brief"), model("hello")), reason: reasonNoTaskText},
		{name: "first user: empty conversation", in: talk(), reason: reasonNoTaskText},

		{name: "latest user: the latest", from: LatestUser, in: talk(user("one"), model("1"), user("two")), want: "two"},
		{name: "latest user: parts are joined with line feeds", from: LatestUser, in: talk(user("a", "b")), want: "a\nb"},
		{name: "latest user: tools and systems are passed over", from: LatestUser, in: talk(user("two"), other("result"), other("reminder")), want: "two"},
		{name: "latest user: a message without text is passed over", from: LatestUser, in: talk(user("two"), user()), want: "two"},
		{name: "latest user: a blank message is passed over", from: LatestUser, in: talk(user("two"), user(" \n")), want: "two"},
		{name: "latest user: never before the last answer", from: LatestUser, in: talk(user("old"), model("1"), user()), reason: reasonNoTaskText},
		{name: "latest user: after the answer to it", from: LatestUser, in: talk(user("old"), model("1")), reason: reasonNoTaskText},

		{name: "terminus: between the markers", terminus: true, in: talk(user(enveloped)), want: "repair the package"},
		{name: "terminus: untrimmed", terminus: true, in: talk(user("Task Description:\n a \n\n\nCurrent terminal state:\n")), want: " a \n"},
		{name: "terminus: off by default", in: talk(user(enveloped)), want: enveloped},
		{name: "terminus: nothing between", terminus: true, in: talk(user(noTask)), want: noTask},
		{name: "terminus: no beginning", terminus: true, in: talk(user("x\n\nCurrent terminal state:\n")), want: "x\n\nCurrent terminal state:\n"},
		{name: "terminus: no end", terminus: true, in: talk(user("Task Description:\nx")), want: "Task Description:\nx"},
		{
			name: "terminus: the end must come later", terminus: true,
			in:   talk(user("\n\nCurrent terminal state:\nTask Description:\nx")),
			want: "\n\nCurrent terminal state:\nTask Description:\nx",
		},
		{name: "terminus: together with the latest", from: LatestUser, terminus: true, in: talk(user(enveloped)), want: "repair the package"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := TaskRules{From: c.from, Terminus: c.terminus, MaxBytes: 1000}
			if rules.From == 0 {
				rules.From = FirstUser
			}
			got, reason := rules.take(c.in)
			if got != c.want || reason != c.reason {
				t.Errorf("got %q, %v; want %q, %v", got, reason, c.want, c.reason)
			}
		})
	}
}
