package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// chatMessage is a message of the OpenAI chat API. Content is a string, null, or
// a list of parts; whatever else the message has does not matter here.
type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type chatPart struct {
	Type string  `json:"type"`
	Text *string `json:"text"`
}

// parseConversation reads a chat request with "messages", or the bare list of
// them. Errors say where, and nothing of what stands there.
func parseConversation(data []byte) (*pointsmanv1.Conversation, error) {
	var messages []chatMessage
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		err = json.Unmarshal(data, &messages)
	} else {
		var request struct {
			Messages *[]chatMessage `json:"messages"`
		}
		if err = json.Unmarshal(data, &request); err == nil && request.Messages == nil {
			return nil, errors.New(`has no "messages"`)
		}
		if request.Messages != nil {
			messages = *request.Messages
		}
	}
	if err != nil {
		return nil, fmt.Errorf("is not a list of chat messages, or an object with one: %w", jsonError(err))
	}
	conversation := new(pointsmanv1.Conversation)
	for i, m := range messages {
		parts, err := parseContent(m.Content)
		if err != nil {
			return nil, fmt.Errorf("messages[%d].content: %w", i, err)
		}
		conversation.Messages = append(conversation.Messages, &pointsmanv1.ChatMessage{Role: role(m.Role), Parts: parts})
	}
	return conversation, nil
}

// jsonError says where JSON went wrong without repeating it.
func jsonError(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("byte %d: unexpected %s", e.Offset, jsonKind(e.Value))
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("byte %d: not valid JSON", e.Offset)
	}
	return errors.New("not valid JSON")
}

// jsonKind keeps the kind of a value: encoding/json reports "number 12" for some.
func jsonKind(value string) string {
	kind, _, _ := bytes.Cut([]byte(value), []byte(" "))
	return string(kind)
}

func parseContent(content json.RawMessage) ([]*pointsmanv1.ContentPart, error) {
	content = bytes.TrimSpace(content)
	switch {
	case len(content) == 0 || bytes.Equal(content, []byte("null")): // only tool calls
		return nil, nil
	case content[0] == '"':
		var text string
		if err := json.Unmarshal(content, &text); err != nil {
			return nil, jsonError(err)
		}
		return []*pointsmanv1.ContentPart{textPart(text)}, nil
	case content[0] != '[':
		return nil, errors.New("must be a string or a list of parts")
	}
	var given []chatPart
	if err := json.Unmarshal(content, &given); err != nil {
		return nil, jsonError(err)
	}
	parts := make([]*pointsmanv1.ContentPart, len(given))
	for i, p := range given {
		if p.Type == "text" && p.Text != nil {
			parts[i] = textPart(*p.Text)
		} else {
			parts[i] = &pointsmanv1.ContentPart{Kind: &pointsmanv1.ContentPart_Other{Other: mediaType(p.Type)}}
		}
	}
	return parts, nil
}

func textPart(text string) *pointsmanv1.ContentPart {
	return &pointsmanv1.ContentPart{Kind: &pointsmanv1.ContentPart_Text{Text: text}}
}

// mediaType says what was left out, as far as the type of a part tells.
func mediaType(partType string) string {
	switch partType {
	case "image_url":
		return "image/*"
	case "input_audio":
		return "audio/*"
	default:
		return "application/octet-stream"
	}
}

// role translates a role; one that is not known is not a user.
func role(name string) pointsmanv1.Role {
	switch name {
	case "system":
		return pointsmanv1.Role_ROLE_SYSTEM
	case "developer":
		return pointsmanv1.Role_ROLE_DEVELOPER
	case "user":
		return pointsmanv1.Role_ROLE_USER
	case "assistant":
		return pointsmanv1.Role_ROLE_ASSISTANT
	case "tool":
		return pointsmanv1.Role_ROLE_TOOL
	default:
		return pointsmanv1.Role_ROLE_UNSPECIFIED
	}
}
