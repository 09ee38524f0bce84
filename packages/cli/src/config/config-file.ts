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
  const fault = faultOfTree(tree, { file, path: '', within: [] });
  if (fault !== undefined) throw new ConfigurationError([fault]);
  return tree;
}

/** Where a value is: its path, and the sections around it. */
interface Place {
  readonly file: string;
  readonly path: string;
  readonly within: readonly unknown[];
}

/** Why a value has no end, or none that is worth reading: an alias (`*name`) may lead back to the section that it is in. */
function faultOfTree(
  value: unknown,
  { file, path, within }: Place,
): ConfigurationError['faults'][number] | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (within.includes(value)) return { path, message: 'contains itself' };
  if (within.length > depthMax) return { path: file, message: `is nested more than ${depthMax} deep` };
  for (const [key, each] of Object.entries(value)) {
    const inner = Array.isArray(value)
      ? `${path}[${key}]`
      : [path, key].filter((name) => name !== '').join('.');
    const fault = faultOfTree(each, { file, path: inner, within: [...within, value] });
    if (fault !== undefined) return fault;
  }
  return undefined;
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
