import { ConfigurationError } from '@framework/core';
import { readFile } from 'node:fs/promises';
import { type Document, LineCounter, type YAMLError, parseDocument } from 'yaml';

/**
 * Reads a configuration file in YAML or JSON, for `withEnvironment` and then `parseFrameworkConfig`.
 *
 * @param setBy what names the file, such as a variable of the environment, for messages
 * @throws ConfigurationError `invalid-configuration` when the file cannot be read or is not YAML; no value is shown
 */
export async function readConfigTree(file: string, setBy: string): Promise<unknown> {
  return parseYaml(file, await readText(file, setBy));
}

async function readText(file: string, setBy: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? 'unknown error';
    throw new ConfigurationError([{ path: setBy, message: `${file} cannot be read (${reason})` }], {
      cause: error,
    });
  }
}

/** No configuration needs as many sections within each other. */
const depthMax = 100;

function parseYaml(file: string, text: string): unknown {
  const lineCounter = new LineCounter();
  // Otherwise warnings would be printed to the console, with the text that they refer to.
  const document = parseDocument(text, { lineCounter, prettyErrors: false, logLevel: 'error' });
  const faults = [...document.errors, ...document.warnings].map((error) => {
    const { line, col } = lineCounter.linePos(error.pos[0]);
    return { path: `${file}, line ${line}, column ${col}`, message: textOf(error) };
  });
  if (faults.length > 0) throw new ConfigurationError(faults);
  const tree = treeOf(document, file);
  if (!isTree(tree)) {
    const message = `is nested more than ${depthMax} deep, or uses an alias (*name) within its own anchor (&name)`;
    throw new ConfigurationError([{ path: file, message }]);
  }
  return tree;
}

/** Whether it has an end: an alias may lead back to what it is a part of. */
function isTree(value: unknown, depth = 0): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return depth < depthMax && Object.values(value).every((each) => isTree(each, depth + 1));
}

function treeOf(document: Document.Parsed, file: string): unknown {
  try {
    return document.toJS();
  } catch (error) {
    // Aliases are resolved only here. The library's error quotes them, and an alias could be part of a password.
    const isTooLarge = error instanceof Error && error.message.startsWith('Excessive alias count');
    const message = isTooLarge
      ? 'expands too many aliases (*name): write out their values instead'
      : 'uses an alias (*name) without an anchor (&name)';
    throw new ConfigurationError([{ path: file, message }]);
  }
}

/** The first words of a message, without its quotes from the file, which may contain a password. */
function textOf({ message }: YAMLError): string {
  return /^[A-Za-z ,()-]*/.exec(message)?.[0].trim() || 'is not YAML';
}
