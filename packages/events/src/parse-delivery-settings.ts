import { ConfigurationException, type ConfigurationFault, kebabCasePath } from '@framework/core';
import { settingFault } from './delivery-ranges.js';
import { type DeliveryOverrides, defaultDeliverySettings } from './delivery-settings.js';

const sectionPath = ['framework', 'delivery'];
const { retry: defaultRetry, ...defaultNumbers } = defaultDeliverySettings;

/**
 * Reads what a configuration file changes in the settings of delivery: `FrameworkConfig.delivery` of core.
 *
 * @param section its keys in camelCase
 * @throws ConfigurationException `invalid-configuration` with the path of every name that is unknown, and of every value
 * that is no whole number within its bounds; values are never shown
 */
export function parseDeliverySettings({
  retry,
  ...numbers
}: Readonly<Record<string, unknown>>): DeliveryOverrides {
  const faults: ConfigurationFault[] = [];
  const overrides = {
    ...knownNumbers(numbers, defaultNumbers, sectionPath, faults),
    ...(retry !== undefined && { retry: retrySection(retry, faults) }),
  };
  if (faults.length > 0) throw new ConfigurationException(faults);
  return overrides;
}

function retrySection(retry: unknown, faults: ConfigurationFault[]): Readonly<Record<string, number>> {
  const path = [...sectionPath, 'retry'];
  if (isSection(retry)) return knownNumbers(retry, defaultRetry, path, faults);
  faults.push({ path: kebabCasePath(path), message: 'is not a section: write attempts-max: … below it' });
  return {};
}

function knownNumbers(
  section: Readonly<Record<string, unknown>>,
  known: object,
  path: readonly string[],
  faults: ConfigurationFault[],
): Readonly<Record<string, number>> {
  const parsed: Record<string, number> = {};
  for (const [name, value] of Object.entries(section)) {
    const message = Object.hasOwn(known, name) ? settingFault(name, value) : 'is not a known key';
    if (message === undefined) parsed[name] = value as number;
    else faults.push({ path: kebabCasePath([...path, name]), message });
  }
  return parsed;
}

function isSection(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
