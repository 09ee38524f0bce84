import { describe, expect, test } from 'vitest';

import {
  type IsCanonical,
  isAddress,
  isHardwareAddress,
  isTime,
  isTimestamp,
  isUuid,
} from './canonical-text.js';

const id = '0198a3c2-7f1e-7abc-8def-0123456789ab';

describe('the canonical text', () => {
  test.each<[string, IsCanonical, readonly string[], readonly string[]]>([
    ['UUID', isUuid, [id], [`${id}0`, `0${id}`, id.toUpperCase(), id.replaceAll('-', '')]],
    [
      'time',
      isTime(false, 3),
      ['07:05:00', '07:05:00.25', '24:00:00'],
      ['07:05:00.2500', '7:05:00', '07:60:00', '07:05:00+00', '24:00:00.5', '07:05:00.1234'],
    ],
    [
      'time with a zone',
      isTime(true, 6),
      ['07:05:00+05:30', '07:05:00-08', '24:00:00+00'],
      ['07:05:00', '07:05:00+00:00'],
    ],
    [
      'timestamp',
      isTimestamp(false, 3),
      ['2026-03-04 07:05:00.25'],
      [
        '2026-02-30 07:05:00',
        '2026-03-04T07:05:00',
        '2026-03-04 07:05:00.1234',
        '2026-03-04 07:05:00+00',
        'now',
        '',
      ],
    ],
    [
      'timestamp with a zone',
      isTimestamp(true, 6),
      ['2026-03-04 07:05:00+00'],
      ['2026-03-04 07:05:00', '2026-03-04 07:05:00+01'],
    ],
    [
      'inet',
      isAddress('inet'),
      ['10.0.0.1', '10.0.0.1/8', '2001:db8::1', '2001:db8::1/64', '::ffff:10.20.30.40'],
      [
        '10.0.0.1/32',
        '10.0.0.1/08',
        '2001:db8::1/128',
        '2001:DB8::1',
        '2001:db8:0:0::1',
        '10.0.0',
        '10.0.0.1/8/8',
        '/8',
        '',
      ],
    ],
    [
      'cidr',
      isAddress('cidr'),
      [
        '10.0.0.0/8',
        '10.0.0.1/32',
        '2001:db8::/32',
        '2001:db8::1/128',
        '::ffff:10.20.0.0/112',
        '::ffff:10.20.30.40/128',
      ],
      [
        '10.0.0.0',
        '10.0.0.1/8',
        '10.0.0.0/33',
        '2001:db8::1/32',
        '2001:db8::/129',
        '::ffff:10.20.0.1/112',
        '::ffff:10.20.0.0/108',
      ],
    ],
    [
      'hardware address',
      isHardwareAddress(6),
      ['08:00:2b:01:02:03'],
      ['08:00:2b:01:02', '08-00-2b-01-02-03', '08:00:2B:01:02:03'],
    ],
  ])('of a %s is distinguished from every other spelling', (_type, isCanonical, canonical, others) => {
    expect(canonical.filter((text) => !isCanonical(text))).toEqual([]);
    expect(others.filter((text) => isCanonical(text))).toEqual([]);
  });
});
