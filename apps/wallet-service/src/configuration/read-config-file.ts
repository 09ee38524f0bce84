import { ConfigurationError, type FrameworkConfig, parseFrameworkConfig } from '@framework/core';
import { readFile } from 'node:fs/promises';
import { LineCounter, type YAMLError, parseDocument } from 'yaml';

/**
 * Reads the databases from a YAML or JSON file.
 *
 * @throws ConfigurationError `invalid-configuration` when the file cannot be read, is not YAML, or has faults; no
 * value of the file is shown
 */
export async function readConfigFile(file: string): Promise<FrameworkConfig> {
  return parseFrameworkConfig(parseYaml(file, await readText(file)));
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? 'unknown error';
    throw new ConfigurationError([{ path: 'WALLET_CONFIG', message: `${file} cannot be read (${reason})` }], {
      cause: error,
    });
  }
}

function parseYaml(file: string, text: string): unknown {
  const lineCounter = new LineCounter();
  // Warnings would go to the console, with the text they are about.
  const document = parseDocument(text, { lineCounter, prettyErrors: false, logLevel: 'error' });
  const faults = [...document.errors, ...document.warnings].map((error) => {
    const { line, col } = lineCounter.linePos(error.pos[0]);
    return { path: `${file}, line ${line}, column ${col}`, message: textOf(error) };
  });
  if (faults.length > 0) throw new ConfigurationError(faults);
  try {
    return document.toJS();
  } catch (error) {
    // Aliases are resolved only now; the error quotes them, and a password may look like one.
    const isTooLarge = error instanceof Error && error.message.startsWith('Excessive alias count');
    const message = isTooLarge
      ? 'has aliases (*name) that repeat too much: write out what they stand for'
      : 'has an alias (*name) without an anchor (&name)';
    throw new ConfigurationError([{ path: file, message }]);
  }
}

/** What is wrong, without what the message quotes of the file: that may be a password. */
function textOf({ message }: YAMLError): string {
  return /^[A-Za-z ,()-]*/.exec(message)?.[0].trim() || 'is not YAML';
}
