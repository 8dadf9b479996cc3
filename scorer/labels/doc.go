// Package labels reads judged examples: tasks, and for each of several models
// whether its answer was right.
//
// [Read] and [ReadFile] return a [Set]. Two forms are read, with or without
// gzip. JSON lines, an object a line:
//
//	{"task": "…", "group": "law", "labels": {"small": 0, "large": 1}}
//
// and CSV with a heading, a line for each task and model, as collectors of the
// field write it (other columns are ignored, group may be missing):
//
//	question,model,isCorrect,group
//	"…",small,false,law
//
// A label is 0 or 1 (or false, true). A model without a label, or with null, has
// none for that task: it is missing, never "wrong". A task that stands in the file
// more than once is one example; if its labels disagree, that is an error.
//
// Every fault is reported with its line, all kinds at once, and never with the
// text of a task.
package labels
