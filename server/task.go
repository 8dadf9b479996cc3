package server

import (
	"slices"
	"strings"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// Input is what a decision is about: the task itself, or a conversation to take
// it from.
type Input struct {
	// Task is used as it is unless IsConversation.
	Task string
	// Conversation holds the messages, oldest first.
	Conversation []Message
	// IsConversation tells an empty conversation from none.
	IsConversation bool
}

// Message is one message of a conversation.
type Message struct {
	Role Speaker
	// Texts are the text parts, in order; other parts are left out.
	Texts []string
}

// Speaker is who speaks, as far as finding the task needs to know.
type Speaker uint8

// The speakers of a conversation.
const (
	SpeakerOther     Speaker = iota // system, developer, tool, or a role unknown here
	SpeakerUser                     // the user
	SpeakerAssistant                // the model
)

// TaskFrom says which message of a conversation is the task.
type TaskFrom uint8

// The ways to find the task.
const (
	FirstUser  TaskFrom = iota + 1 // the first user message with text
	LatestUser                     // the newest user message since the last answer
)

// The markers of the Terminus agent's prompt, between which the task stands.
const (
	terminusBegin = "Task Description:\n"
	terminusEnd   = "\n\nCurrent terminal state:\n"
)

// TaskRules is how a route takes the task text from its input.
type TaskRules struct {
	From TaskFrom
	// Terminus takes only what stands between the Terminus agent's markers.
	Terminus bool
	// MaxBytes is the longest task that is scored.
	MaxBytes int
}

// take returns the task text, or the reason why there is none to score. Neither
// reason costs a probe.
func (r TaskRules) take(in Input) (string, pointsmanv1.FallbackReason) {
	text := in.Task
	if in.IsConversation {
		switch r.From {
		case LatestUser:
			text = latestUser(in.Conversation)
		default:
			text = firstUser(in.Conversation)
		}
		if r.Terminus {
			text = unwrapTerminus(text)
		}
	}
	switch {
	case text == "":
		return "", reasonNoTaskText
	case len(text) > r.MaxBytes:
		return "", reasonTaskTooLarge
	}
	return text, reasonNone
}

// firstUser returns the text of the first user message that has any.
func firstUser(messages []Message) string {
	for _, m := range messages {
		if m.Role != SpeakerUser {
			continue
		}
		if text := join(m.Texts, ""); text != "" {
			return text
		}
	}
	return ""
}

// latestUser returns the text of the newest user message that is not blank. The
// search ends at the model's last answer: what the user asked before it has been
// dealt with, and must not be scored for a turn that holds only an attachment.
func latestUser(messages []Message) string {
	for _, m := range slices.Backward(messages) {
		switch m.Role {
		case SpeakerAssistant:
			return ""
		case SpeakerUser:
			if text := join(m.Texts, "\n"); strings.TrimSpace(text) != "" {
				return text
			}
		case SpeakerOther:
		}
	}
	return ""
}

// join is strings.Join, without a copy for the usual single part.
func join(texts []string, sep string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return strings.Join(texts, sep)
}

// unwrapTerminus returns what stands between the markers, untrimmed, or the whole
// text when a marker is missing or nothing stands between.
func unwrapTerminus(text string) string {
	_, rest, found := strings.Cut(text, terminusBegin)
	if !found {
		return text
	}
	task, _, found := strings.Cut(rest, terminusEnd)
	if !found || task == "" {
		return text
	}
	return task
}
