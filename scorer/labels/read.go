package labels

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// readJSONLines reads an object a line; blank lines are passed over.
func (c *collector) readJSONLines(r *bufio.Reader) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLineBytes)
	for line := 1; scanner.Scan(); line++ {
		text := bytes.TrimSpace(scanner.Bytes())
		if len(text) == 0 {
			continue
		}
		var row struct {
			Task   *string                    `json:"task"`
			Group  string                     `json:"group"`
			Labels map[string]json.RawMessage `json:"labels"`
		}
		switch err := json.Unmarshal(text, &row); {
		case err != nil:
			c.faults.add("that are not an object of task, group and labels", line)
			continue
		case row.Task == nil:
			c.faults.add("without a task", line)
			continue
		case !utf8.Valid(text):
			c.faults.add("that are not UTF-8", line)
			continue
		case len(row.Labels) == 0:
			c.faults.add("without labels", line)
			continue
		}
		judged := make(map[string]Label, len(row.Labels))
		for model, raw := range row.Labels {
			label, ok := Parse(string(raw))
			if !ok {
				c.faults.add("with a label that is not 0, 1, true, false or null", line)
				continue
			}
			judged[model] = label
		}
		c.add(line, *row.Task, row.Group, judged)
	}
	if err := scanner.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("%w: a line of more than %d bytes", ErrInvalid, maxLineBytes)
		}
		return fmt.Errorf("read judged data: %w", err)
	}
	return nil
}

// Parse reads a label as either form writes it.
func Parse(s string) (label Label, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "1.0", "true":
		return Right, true
	case "0", "0.0", "false":
		return Wrong, true
	case "", "null", "nan":
		return Missing, true
	default:
		return Missing, false
	}
}

// readCSV reads a heading, then a line for each task and model.
func (c *collector) readCSV(r *bufio.Reader) error {
	reader := csv.NewReader(r)
	reader.ReuseRecord = true
	heading, err := reader.Read()
	if err != nil {
		return fmt.Errorf("%w (it is neither JSON lines nor CSV)", csvError(err))
	}
	columns := map[string]int{"question": -1, "model": -1, "iscorrect": -1, "group": -1}
	for i, name := range heading {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
		if at, wanted := columns[name]; wanted && at < 0 {
			columns[name] = i
		}
	}
	for _, name := range []string{"question", "model", "isCorrect"} {
		if columns[strings.ToLower(name)] < 0 {
			return fmt.Errorf("%w: it is neither JSON lines nor CSV: no column %q in the heading on line 1", ErrInvalid, name)
		}
	}
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return csvError(err)
		}
		line, _ := reader.FieldPos(0)
		label, ok := Parse(record[columns["iscorrect"]])
		if !ok {
			c.faults.add("with an isCorrect that is not 0, 1, true, false or empty", line)
			continue
		}
		group := ""
		if at := columns["group"]; at >= 0 {
			group = record[at]
		}
		// Clone: the record, and the strings cut from it, are used again.
		c.add(line, strings.Clone(record[columns["question"]]), strings.Clone(group),
			map[string]Label{strings.Clone(record[columns["model"]]): label})
	}
}

// csvError says where a CSV file is broken without repeating its text.
func csvError(err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("%w: line %d: %w", ErrInvalid, parse.Line, parse.Err)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: there is nothing in it", ErrInvalid)
	}
	return fmt.Errorf("read judged data: %w", err)
}
