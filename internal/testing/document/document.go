// Package document reads the pages of the documentation. Tests hold what a page
// prints against the programs and the compiled code.
package document

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Page is a page of the documentation, or a section of one.
type Page struct {
	Name string // such as docs/wid.md, with the heading of the section
	Text string
	t    testing.TB
}

// Block is a fenced block, without the indentation of a list that it belongs
// to.
type Block struct {
	Heading  string // of the second level
	Language string
	Text     string
}

// Read returns the page with a name relative to the root of the repository.
func Read(t testing.TB, name string) Page {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return Page{Name: name, Text: string(content), t: t}
}

// root returns the folder of the repository, which alone has a license.
func root(t testing.TB) string {
	t.Helper()
	for dir := "."; len(dir) < len("../../../../../../../../.."); dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "LICENSE")); err == nil {
			return dir
		}
	}
	t.Fatal("no folder above has the LICENSE")
	return ""
}

// line is a line of a page. A fence belongs to its block, whose language and
// indentation it has.
type line struct {
	text, language, indent string
	level                  int // of a heading, else 0
	fence, opens, inBlock  bool
}

// lines tells headings and fences from lines of blocks that look like them.
func (p Page) lines() (all []line) {
	l := line{}
	for l.text = range strings.Lines(p.Text) {
		trimmed := strings.TrimSpace(l.text)
		l.fence = trimmed == "```" || !l.inBlock && strings.HasPrefix(trimmed, "```")
		l.opens, l.level = l.fence && !l.inBlock, 0
		if l.opens {
			l.language, l.indent = trimmed[3:], l.text[:strings.Index(l.text, "`")]
		}
		if marks, _, ok := strings.Cut(l.text, " "); ok && !l.inBlock && strings.Trim(marks, "#") == "" {
			l.level = len(marks)
		}
		l.inBlock = l.inBlock != l.fence
		all = append(all, l)
	}
	return all
}

// heading returns the words of a heading.
func (l line) heading() string { return strings.TrimSpace(strings.TrimLeft(l.text, "#")) }

// Section returns what is below a heading of any level, up to the next heading
// of its level.
func (p Page) Section(heading string) Page {
	p.t.Helper()
	level, section := 0, Page{p.Name + "#" + heading, "", p.t}
	for _, l := range p.lines() {
		if level > 0 && l.level > 0 && l.level <= level {
			break
		}
		if level > 0 {
			section.Text += l.text
		} else if l.level > 0 && l.heading() == heading {
			level = l.level
		}
	}
	if level == 0 {
		p.t.Fatalf("%s has no heading %q", p.Name, heading)
	}
	return section
}

// Blocks returns the blocks of the languages, or all of them.
func (p Page) Blocks(languages ...string) (found []Block) {
	block := Block{}
	for _, l := range p.lines() {
		switch {
		case l.level == 2:
			block.Heading = l.heading()
		case l.opens:
			block.Language, block.Text = l.language, ""
		case l.fence && (len(languages) == 0 || slices.Contains(languages, l.language)):
			found = append(found, block)
		case l.inBlock:
			block.Text += strings.TrimPrefix(l.text, l.indent)
		}
	}
	return found
}

// Block returns the only block of a language that contains a text.
func (p Page) Block(language, text string) string {
	p.t.Helper()
	found := slices.DeleteFunc(p.Blocks(language), func(b Block) bool { return !strings.Contains(b.Text, text) })
	if len(found) != 1 {
		p.t.Fatalf("%s has %d blocks of %s with %q, want one", p.Name, len(found), language, text)
	}
	return found[0].Text
}

// Commands returns the lines of the blocks of the shell. A line that ends in a
// backslash goes on in the next one.
func (p Page) Commands() (commands []string) {
	p.t.Helper()
	for _, b := range p.Blocks("sh") {
		for command := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", "")) {
			if command = strings.TrimSpace(command); command != "" {
				commands = append(commands, command)
			}
		}
	}
	if len(commands) == 0 {
		p.t.Fatalf("%s has no commands", p.Name)
	}
	return commands
}

// Rows returns the cells of all tables whose first column has a heading. They
// hold no escaped bars. A row continues the row above it if its own first cell
// is empty, or if the first cell above ends with a comma.
func (p Page) Rows(heading string) (rows [][]string) {
	p.t.Helper()
	inTable, wanted := false, false
	for _, l := range p.lines() {
		cells := strings.Split(strings.Trim(strings.TrimSpace(l.text), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		isRow := !l.inBlock && strings.HasPrefix(l.text, "|")
		switch {
		case isRow && !inTable:
			wanted = cells[0] == heading
		case isRow && wanted && len(rows) > 0 &&
			(cells[0] == "" || strings.HasSuffix(rows[len(rows)-1][0], ",")):
			above := rows[len(rows)-1]
			for i := range min(len(above), len(cells)) {
				above[i] = strings.TrimSpace(above[i] + " " + cells[i])
			}
		case isRow && wanted && !strings.HasPrefix(l.text, "|--"):
			rows = append(rows, cells)
		}
		inTable = isRow
	}
	if len(rows) == 0 {
		p.t.Fatalf("%s has no table whose first column is %q", p.Name, heading)
	}
	return rows
}

var quoted = regexp.MustCompile("`([^`\n]+)`")

// Names returns the words of a text that are in back quotes.
func Names(text string) (names []string) {
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return names
}

// Anchors returns the anchors of the headings, as GitHub makes them.
func (p Page) Anchors() (anchors []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	for _, l := range p.lines() {
		if l.level == 0 {
			continue
		}
		anchor := strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(l.heading()), ""), " ", "-")
		if n := len(slices.DeleteFunc(slices.Clone(anchors), func(a string) bool { return a != anchor })); n > 0 {
			anchor = fmt.Sprint(anchor, "-", n)
		}
		anchors = append(anchors, anchor)
	}
	return anchors
}

// Replace replaces an example value, which has to be there.
func Replace(t testing.TB, text, example, value string) string {
	t.Helper()
	if !strings.Contains(text, example) {
		t.Fatalf("%q is not in\n%s", example, text)
	}
	return strings.ReplaceAll(text, example, value)
}

// Shows checks that the page has a block of Go with a text, and that a file of
// the test's package has it from one empty line to another.
func (p Page) Shows(file, text string) {
	p.t.Helper()
	source, err := os.ReadFile(file) //nolint:gosec // a file of the test's package
	if err != nil {
		p.t.Fatal(err)
	}
	if block := p.Block("go", text); !strings.Contains("\n\n"+string(source)+"\n", "\n\n"+block+"\n") {
		p.t.Errorf("%s differs from %s in\n%s", p.Name, file, block)
	}
}
