package formats

import (
	"fmt"
	"slices"
)

// resolve returns the step of a value that was written as writer and is read as reader, by the
// specification's rules (schema resolution). The library has checked that the types fit.
func (p *avroPlan) resolve(reader, writer *avroType) (*avroStep, error) {
	pair := [2]*avroType{reader, writer}
	if known := p.resolved[pair]; known != nil {
		return known, nil
	}
	if reader.kind == avroUnion && writer.kind != avroUnion {
		branch := matching(reader.branches, writer)
		if branch == nil {
			return nil, noMatch(reader, writer)
		}
		return p.resolve(branch, writer)
	}
	s := newStep(reader, writer)
	p.resolved[pair] = s
	switch {
	case writer.kind == avroUnion:
		return s, p.resolveBranches(s, reader, writer)
	case reader.kind != writer.kind:
		if !slices.Contains(promotions[writer.kind], reader.kind) {
			return nil, noMatch(reader, writer)
		}
		return s, nil
	case reader.kind == avroRecord:
		return s, p.resolveFields(s, reader, writer)
	case reader.kind == avroEnum:
		return s, s.resolveSymbols(reader, writer)
	case reader.kind == avroArray || reader.kind == avroMap:
		item, err := p.resolve(reader.item, writer.item)
		s.item, s.noBytes = item, writer.item.noBytes
		return s, err
	}
	return s, nil
}

func noMatch(reader, writer *avroType) error {
	return fmt.Errorf("a %s is not read as a %s", writer.kind, reader.kind)
}

// promotions are the kinds that a kind may be read as, besides itself.
var promotions = map[avroKind][]avroKind{
	avroInt:    {avroLong, avroFloat, avroDouble},
	avroLong:   {avroFloat, avroDouble},
	avroFloat:  {avroDouble},
	avroString: {avroBytes},
	avroBytes:  {avroString},
}

// matching returns the branch of the reader's union that reads what was written as writer: one of
// the same kind and name, else one whose short name is the same, else the first one that is a wider
// type.
func matching(branches []*avroType, writer *avroType) *avroType {
	for _, matches := range []func(*avroType) bool{
		func(b *avroType) bool {
			return b.sameKind(writer) && (b.name == writer.name || slices.Contains(b.aliases, writer.name))
		},
		func(b *avroType) bool {
			short := shortName(writer.name)
			return b.sameKind(writer) && (shortName(b.name) == short || slices.Contains(b.shorts, short))
		},
		func(b *avroType) bool { return slices.Contains(promotions[writer.kind], b.kind) },
	} {
		if i := slices.IndexFunc(branches, matches); i >= 0 {
			return branches[i]
		}
	}
	return nil
}

func (t *avroType) sameKind(other *avroType) bool {
	return t.kind == other.kind && t.size == other.size
}

// resolveBranches adds the branches of the writer's union to a step.
func (p *avroPlan) resolveBranches(s *avroStep, reader, writer *avroType) error {
	s.read = avroUnion
	for _, branch := range writer.branches {
		step, err := p.resolve(reader, branch)
		if err != nil {
			return err
		}
		s.branches = append(s.branches, step)
	}
	return nil
}

// resolveFields adds the fields of the writer's record to a step, and those that have a default
// value.
func (p *avroPlan) resolveFields(s *avroStep, reader, writer *avroType) error {
	found := make([]bool, len(reader.fields))
	for _, written := range writer.fields {
		i := slices.IndexFunc(reader.fields, func(f avroField) bool { return f.name == written.name })
		if i < 0 {
			i = slices.IndexFunc(reader.fields, func(f avroField) bool { return slices.Contains(f.aliases, written.name) })
		}
		if i < 0 {
			if !written.typ.noBytes {
				s.fields = append(s.fields, avroMember{name: written.name, skip: written.typ})
			}
			continue
		}
		found[i] = true
		step, err := p.resolve(reader.fields[i].typ, written.typ)
		if err != nil {
			return err
		}
		s.fields = append(s.fields, avroMember{name: reader.fields[i].name, key: quoted(reader.fields[i].name) + ":", step: step})
	}
	for i, field := range reader.fields {
		if found[i] {
			continue
		}
		if field.fallback == nil {
			return fmt.Errorf("the field %s is not in what was written, and has no default", field.name)
		}
		member := avroMember{name: field.name, key: quoted(field.name) + ":"}
		member.text, member.err = field.fallback()
		s.fields = append(s.fields, member)
	}
	s.sort()
	return nil
}

// resolveSymbols adds the symbols of the writer's enum to a step, as the reader has them.
func (s *avroStep) resolveSymbols(reader, writer *avroType) error {
	for _, symbol := range writer.symbols {
		if !slices.Contains(reader.symbols, symbol) {
			if !reader.hasOther {
				return fmt.Errorf("the enum %s does not have the symbol %s, and no default", reader.name, symbol)
			}
			symbol = reader.otherwise
		}
		s.symbols = append(s.symbols, quoted(symbol))
	}
	return nil
}
