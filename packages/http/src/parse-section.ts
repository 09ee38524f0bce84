import { ConfigurationError } from '@framework/core';
import { kebabCasePath, unknownKeys } from '@framework/core/adapter';
import type * as z from 'zod';

/**
 * Validates a section of the configuration file that core only passes on, and completes it with the defaults of its schema.
 *
 * @param name its key below `framework`, such as `http`
 * @param section the section with keys in camel case, as `parseFrameworkConfig` of core returns it
 * @throws ConfigurationError `invalid-configuration` with the path of every fault; values are never shown
 */
export function parseSection<Schema extends z.ZodType>(
  name: string,
  schema: Schema,
  section: Readonly<Record<string, unknown>>,
): z.output<Schema> {
  const { data, error } = schema.safeParse(section, { reportInput: true });
  if (error === undefined) return data;
  throw new ConfigurationError(
    error.issues.flatMap((issue) => {
      const path = ['framework', name, ...issue.path];
      if (issue.code === 'unrecognized_keys') return unknownKeys(path, issue.keys);
      return [
        { path: kebabCasePath(path), message: issue.input === undefined ? 'is missing' : issue.message },
      ];
    }),
  );
}
