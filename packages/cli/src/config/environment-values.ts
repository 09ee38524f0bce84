import { ConfigurationError } from '@framework/core';
import { type ConfigurationIssue, configurationKeys, nearestName } from '@framework/core/adapter';
import { defaultDeliverySettings } from '@framework/events';
import { readFileSync } from 'node:fs';
import { parseDocument } from 'yaml';
import * as z from 'zod';

const prefix = 'FRAMEWORK_';
/** The end of a variable that names a file with the value. */
const fileSuffix = '_FILE';

/** A part of the configuration: what may be below it, as far as its schema says so. */
interface Node {
  readonly type?: unknown;
  readonly properties?: Readonly<Record<string, Node>>;
  /** The schema of names that are chosen freely. */
  readonly additionalProperties?: Node | boolean;
  readonly items?: Node;
  readonly anyOf?: readonly Node[];
}

/** The variables of the command line, which are no keys of the configuration. */
const ofCommandLine = /^FRAMEWORK_(CONFIG$|CLI_)/;

/** The schemas of the sections that core only passes on, by their keys below `framework`, such as `relay`. */
export type SectionSchemas = Readonly<Record<string, z.ZodType>>;

/**
 * Puts the values of `FRAMEWORK_…` variables into a configuration tree, where they replace those of the file.
 *
 * A variable is the path of a key in upper case, its parts joined by `_`, each without `-`, and positions of lists as numbers:
 * `FRAMEWORK_SHARDING_GROUPS_0_NAME`. With `_FILE` at its end, it names a file with the value, whose last line break is dropped. An empty
 * variable counts as unset. The variables of the command line, `FRAMEWORK_CONFIG` and `FRAMEWORK_CLI_…`, are left alone.
 *
 * @param tree what the file contains; it is not changed
 * @param sections what may be in the sections that core only passes on
 * @throws ConfigurationError `invalid-configuration` with every variable that has no key, contradicts another one or cannot be read;
 * values are never shown
 */
export function withEnvironment(
  tree: unknown,
  environment: NodeJS.ProcessEnv,
  sections: SectionSchemas,
): unknown {
  const result = { value: structuredClone(tree) };
  const faults: ConfigurationIssue[] = [];
  const root: Node = { properties: { framework: rootOf(sections) } };
  for (const name of variablesIn(environment)) {
    const issue = apply({ name, value: environment[name] ?? '', root, environment }, result);
    if (issue !== undefined) faults.push({ path: name, message: issue });
  }
  if (faults.length > 0) throw new ConfigurationError(faults);
  return result.value;
}

/** Positions of lists are compared as numbers, so that lists grow from their beginning. */
function variablesIn(environment: NodeJS.ProcessEnv): readonly string[] {
  const { compare } = new Intl.Collator('en', { numeric: true });
  return Object.keys(environment)
    .filter((name) => name.startsWith(prefix) && !ofCommandLine.test(name) && environment[name] !== '')
    .toSorted(compare);
}

function rootOf(sections: SectionSchemas): Node {
  const { properties: { framework } = {} } = nodeOf(configurationKeys());
  const own = Object.entries(sections).map(([name, schema]) => [name, nodeOf(schema)] as const);
  const delivery = keysOf(defaultDeliverySettings);
  return { properties: { ...framework?.properties, delivery, ...Object.fromEntries(own) } };
}

function nodeOf(schema: z.ZodType): Node {
  return z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as Node;
}

/** The keys of an object whose values are numbers. */
function keysOf(settings: object): Node {
  const properties = Object.entries(settings).map(([key, value]: [string, unknown]) => [
    key,
    typeof value === 'object' && value !== null ? keysOf(value) : { type: 'number' },
  ]);
  return { properties: Object.fromEntries(properties) as Readonly<Record<string, Node>> };
}

/** A variable to apply. */
interface Variable {
  readonly name: string;
  readonly value: string;
  readonly root: Node;
  readonly environment: NodeJS.ProcessEnv;
}

/** Sets the value of a variable; returns what is wrong with it, if anything. */
function apply({ name, value, root, environment }: Variable, tree: { value: unknown }): string | undefined {
  const isFile = name.endsWith(fileSuffix);
  const key = isFile ? name.slice(0, -fileSuffix.length) : name;
  if (isFile && environment[key]) return `is set beside ${key}: keep one`;
  const place = placeOf(key.split('_'), root, tree.value);
  if (typeof place === 'string') return `is not known: did you mean ${place}${isFile ? fileSuffix : ''}?`;
  try {
    const text = isFile ? textIn(value) : value;
    const isOfText = alternatives(place.node).every(({ type }) => type === 'string');
    tree.value = put(tree.value, place.path, isOfText ? text : parsed(text));
    return undefined;
  } catch (error) {
    if (error instanceof ValueIssue) return error.message;
    throw error;
  }
}

/** What is wrong with a value, without the value. */
class ValueIssue extends Error {}

function textIn(file: string): string {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new ValueIssue(`names a file that cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
  const value = text.replace(/\r?\n$/, '');
  if (value === '') throw new ValueIssue('names a file that is empty');
  return value;
}

/** Numbers, true and false, lists and sections are written as in a file. */
function parsed(text: string): unknown {
  try {
    const document = parseDocument(text, { prettyErrors: false, logLevel: 'error' });
    if (document.errors.length + document.warnings.length > 0) throw new Error('not YAML');
    return document.toJS() as unknown;
  } catch {
    throw new ValueIssue(
      'must be written as in the configuration file: a number, true or false, or a list such as [a, b]',
    );
  }
}

/** The keys and positions that lead to a value, and what the schema says of it. */
interface Place {
  readonly path: readonly (string | number)[];
  readonly node: Node;
}

/** Finds the key that a variable means, or the name of the variable that was probably meant. */
function placeOf(parts: readonly string[], root: Node, tree: unknown): Place | string {
  const path: (string | number)[] = [];
  let here: { readonly node: Node; readonly tree: unknown } = { node: root, tree };
  for (const [index, part] of parts.entries()) {
    const next = stepInto(here.node, here.tree, part);
    if (next === undefined) {
      const known = parts.slice(0, index);
      return [...known, ...nearestParts(parts.slice(index), here.node, here.tree)].join('_');
    }
    path.push(next.key);
    here = next;
  }
  return { path, node: here.node };
}

interface Step {
  readonly key: string | number;
  readonly node: Node;
  readonly tree: unknown;
}

function stepInto(node: Node, tree: unknown, part: string): Step | undefined {
  for (const each of alternatives(node)) {
    if (each.items !== undefined && /^(0|[1-9]\d{0,3})$/.test(part)) {
      const position = Number(part);
      return { key: position, node: each.items, tree: Array.isArray(tree) ? tree[position] : undefined };
    }
    const step = keysIn(each, tree).find(({ key }) => nameOf(key) === part);
    if (step !== undefined) return step;
  }
  return undefined;
}

/** The keys of a section: those of its schema, in the file's spelling, and those that the file has chosen. */
function keysIn(
  { properties = {}, additionalProperties }: Node,
  tree: unknown,
): readonly (Step & { key: string })[] {
  const given = typeof tree === 'object' && tree !== null && !Array.isArray(tree) ? Object.entries(tree) : [];
  const known = Object.entries(properties).map(([key, node]) => {
    const [spelled = key, value] = given.find(([each]) => nameOf(each) === nameOf(key)) ?? [];
    return { key: spelled, node, tree: value as unknown };
  });
  if (typeof additionalProperties !== 'object') return known;
  const chosen = given.map(([key, value]) => ({ key, node: additionalProperties, tree: value as unknown }));
  return [...known, ...chosen];
}

/** A key as a part of a variable: `jdbc-url` and `jdbcUrl` are `JDBCURL`. */
function nameOf(key: string): string {
  return key.replaceAll(/[-_]/g, '').toUpperCase();
}

function alternatives(node: Node): readonly Node[] {
  return node.anyOf?.flatMap(alternatives) ?? [node];
}

/** Corrects the first part, which may be a key that was written as several parts, and all that follow. */
function nearestParts(parts: readonly string[], node: Node, tree: unknown): readonly string[] {
  if (parts.length === 0) return [];
  const [list] = alternatives(node).flatMap(({ items = [] }) => items);
  if (list !== undefined) return ['0', ...nearestParts(parts, list, undefined)];
  const steps = alternatives(node)
    .flatMap((each) => keysIn(each, tree))
    .map((step) => ({ ...step, name: nameOf(step.key) }));
  const joined = parts.map((_part, index) => parts.slice(0, index + 1).join(''));
  const count = joined.findLastIndex((text) => steps.some(({ name }) => name === text)) + 1;
  const name =
    count > 0
      ? (joined[count - 1] ?? '')
      : nearestName(
          parts[0] ?? '',
          steps.map((step) => step.name),
        );
  const step = steps.find((each) => each.name === name);
  if (step === undefined) return [];
  return [name, ...nearestParts(parts.slice(Math.max(count, 1)), step.node, step.tree)];
}

/** A copy of a tree with a value at a place. */
function put(tree: unknown, [key, ...rest]: readonly (string | number)[], value: unknown): unknown {
  if (key === undefined) return value;
  if (typeof key === 'number') {
    const list: unknown[] = Array.isArray(tree) ? [...(tree as unknown[])] : [];
    if (key > list.length)
      throw new ValueIssue(
        `names position ${key} of a list that has ${list.length}: positions begin with 0, and none may be left out`,
      );
    list[key] = put(list[key], rest, value);
    return list;
  }
  const section: Record<string, unknown> =
    typeof tree === 'object' && tree !== null && !Array.isArray(tree) ? { ...tree } : {};
  section[key] = put(section[key], rest, value);
  return section;
}
